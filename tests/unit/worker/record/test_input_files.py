"""A file that the system refuses: whose fault it is, at the first attempt and later. By real refusals."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import AnnotationError, ImageError, PairChanged, StorageError
from worker.record.input_files import Inputs, read_file

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/mem, whose first byte is an EIO")
OF_THIS_PROCESS = Inputs(data_root=Path("/proc"), folder=Path("/proc/self"))

ROOT = Path(__file__).resolve().parents[4]


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Nothing can be opened: EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@needs_proc
def test_a_file_refused_at_the_first_attempt_is_the_mounts_fault() -> None:
    with pytest.raises(StorageError, match=r"cannot read /proc/self/mem: Input/output error"):
        read_file(OF_THIS_PROCESS, "mem", ImageError)


@needs_proc
def test_a_file_refused_again_in_a_folder_that_can_be_listed_is_its_pairs_fault() -> None:
    again = replace(OF_THIS_PROCESS, is_repeated=True)
    with pytest.raises(ImageError, match=r"^mem: the disk cannot read it"):
        read_file(again, "mem", ImageError)
    with pytest.raises(AnnotationError, match=r"^mem: the disk cannot read it"):
        read_file(again, "mem", AnnotationError)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_what_the_process_lacks_is_never_a_pairs_fault(tmp_path: Path, is_repeated: bool) -> None:
    (tmp_path / "a.jpg").write_bytes(b"a")
    inputs = Inputs(data_root=tmp_path, folder=tmp_path, is_repeated=is_repeated)
    with no_descriptor_left(), pytest.raises(StorageError, match="Too many open files"):
        read_file(inputs, "a.jpg", ImageError)
    assert read_file(inputs, "a.jpg", ImageError) == b"a"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize(("mode_of_others", "error"), [(0o644, "ImageError"), (0o600, "StorageError")])
def test_a_file_that_its_owner_alone_may_read_is_to_blame_unless_all_are_so(mode_of_others: int, error: str) -> None:
    """A set that was copied with mode 0600 is no pair's fault; a single file of it is."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        for number in range(3):
            file = folder / f"{number}.jpg"
            file.write_bytes(b"x")
            file.chmod(0o600 if number == 1 else mode_of_others)
        program = (
            "import sys; from pathlib import Path\n"
            "from shared.errors import ImageError, PipelineError\n"
            "from worker.record.input_files import Inputs, read_file\n"
            "folder = Path(sys.argv[1])\n"
            "try:\n    read_file(Inputs(data_root=folder, folder=folder, is_repeated=True), '1.jpg', ImageError)\n"
            "except PipelineError as error:\n    print(type(error).__name__)\n"
        )
        # Imported as root: the checkout may be closed to other users too.
        become = "import os, worker.record.input_files; os.setuid(12345)\n"
        done = subprocess.run(
            [sys.executable, "-c", become + program, name], capture_output=True, text=True, check=True, cwd=ROOT
        )
    assert done.stdout.strip() == error


@pytest.fixture
def linked(tmp_path: Path) -> Inputs:
    """A data root with a set in it, and beside the root a file and a device that nobody may read through it."""
    (tmp_path / "root/set").mkdir(parents=True)
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    return Inputs(data_root=tmp_path / "root", folder=tmp_path / "root/set")


@pytest.mark.parametrize("target", ["../../secret.jpg", "../../absent.jpg", "/dev/zero", "/proc/self/mem", "../.."])
def test_a_link_out_of_the_data_root_is_refused_whatever_it_leads_to(linked: Inputs, target: str) -> None:
    (linked.folder / "a.jpg").symlink_to(target)
    for inputs in (linked, replace(linked, is_repeated=True)):
        with pytest.raises(ImageError, match=r"^a\.jpg: leads out of the data root; refused$"):
            read_file(inputs, "a.jpg", ImageError)


def test_a_folder_beside_the_data_root_whose_name_begins_alike_is_outside(linked: Inputs, tmp_path: Path) -> None:
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2/a.jpg").write_bytes(b"secret")
    (linked.folder / "deep").symlink_to(tmp_path / "root-2")
    with pytest.raises(ImageError, match="leads out of the data root"):
        read_file(linked, "deep/a.jpg", ImageError)
    with pytest.raises(ImageError, match="leads out of the data root"):
        read_file(linked, "../../root-2/a.jpg", ImageError)


def test_links_inside_the_data_root_are_followed_also_where_the_root_is_a_link(linked: Inputs, tmp_path: Path) -> None:
    (linked.data_root / "pool").mkdir()
    (linked.data_root / "pool/a.jpg").write_bytes(b"inside")
    (linked.folder / "a.jpg").symlink_to("../pool/a.jpg")
    (linked.folder / "more").symlink_to(linked.data_root / "pool")
    (tmp_path / "shown").symlink_to("root")
    for root in (linked.data_root, tmp_path / "shown", tmp_path / "root/set/.."):
        inputs = Inputs(data_root=root, folder=root / "set")
        assert read_file(inputs, "a.jpg", ImageError) == read_file(inputs, "more/a.jpg", ImageError) == b"inside"


def test_a_data_root_that_is_a_link_and_leads_elsewhere_now_is_followed(tmp_path: Path) -> None:
    """As a release that is switched over by its link: no photo of the new one is refused, and none of the old lent."""
    shown = tmp_path / "shown"
    inputs = Inputs(data_root=shown, folder=shown)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").write_bytes(name.encode())
        shown.unlink(missing_ok=True)
        shown.symlink_to(name)
        assert read_file(inputs, "a.jpg", ImageError) == name.encode()
    (tmp_path / "new/b.jpg").symlink_to("../old/a.jpg")
    with pytest.raises(ImageError, match="leads out of the data root"):
        read_file(inputs, "b.jpg", ImageError)


@pytest.mark.parametrize("system_tells", [True, False], ids=["the system tells the place", "it does not"])
def test_a_link_that_is_switched_all_the_time_never_gives_a_file_from_outside(
    linked: Inputs, system_tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked is what was opened, not what has its name a moment later."""
    if not system_tells:
        monkeypatch.setattr("worker.record.input_files._place_of", lambda _: None)
    (linked.folder / "sound.jpg").write_bytes(b"inside")
    switch = (
        "import os, sys\nwhile True:\n    for target in ('../../secret.jpg', 'sound.jpg'):\n"
        "        os.symlink(target, 'next'); os.rename('next', 'a.jpg')\n"
    )
    (linked.folder / "a.jpg").symlink_to("sound.jpg")
    read: Counter[bytes | type[Exception]] = Counter()
    switcher = subprocess.Popen([sys.executable, "-c", switch], cwd=linked.folder)
    try:
        ends_at = time.monotonic() + 30
        while min(read[b"inside"], read[ImageError]) < 2000 and time.monotonic() < ends_at:
            try:
                read[read_file(linked, "a.jpg", ImageError)] += 1
            except (ImageError, StorageError) as error:
                read[type(error)] += 1
    finally:
        switcher.kill()
        switcher.wait()
    assert read.keys() <= {b"inside", ImageError, StorageError}
    assert min(read[b"inside"], read[ImageError]) >= 2000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_data_root_that_may_be_entered_and_not_listed_is_read() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        (folder / "a.jpg").write_bytes(b"inside")
        folder.chmod(0o711)
        program = (
            "import os, sys; from pathlib import Path\n"
            "from shared.errors import ImageError\n"
            "from worker.record.input_files import Inputs, read_file\n"
            "os.setuid(12345); folder = Path(sys.argv[1])\n"
            "print(read_file(Inputs(data_root=folder, folder=folder), 'a.jpg', ImageError).decode())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, name], capture_output=True, text=True, check=True, cwd=ROOT
        )
    assert done.stdout.strip() == "inside"


def test_a_file_is_read_whole_and_no_descriptor_stays_open(linked: Inputs) -> None:
    content = os.urandom(3 * 2**20 + 1)
    (linked.folder / "a.jpg").write_bytes(content)
    (linked.folder / "empty.jpg").write_bytes(b"")
    before = set(os.listdir("/dev/fd"))
    assert read_file(linked, "a.jpg", ImageError) == content
    assert read_file(linked, "empty.jpg", ImageError) == b""
    with pytest.raises(ImageError):
        read_file(linked, "../../secret.jpg", ImageError)
    assert set(os.listdir("/dev/fd")) == before


def test_a_file_larger_than_any_picture_is_refused_unread(linked: Inputs) -> None:
    with open(linked.folder / "a.xml", "wb") as file:
        file.truncate(2**30)
    for error_class in (AnnotationError, ImageError):
        with pytest.raises(error_class, match=r"a\.xml: 1073741824 bytes, at most"):
            read_file(linked, "a.xml", error_class)


@needs_proc
def test_a_file_that_is_longer_than_it_says_is_read_whole() -> None:
    """As one that grows while it is read; those of /proc say that they are empty."""
    assert b"\nPid:" in read_file(OF_THIS_PROCESS, "status", ImageError)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_name_that_leads_to_no_file_is_its_pairs_fault(linked: Inputs, is_repeated: bool) -> None:
    (linked.folder / "loop.jpg").symlink_to("loop.jpg")
    (linked.folder / "folder.jpg").mkdir()
    os.mkfifo(linked.folder / "pipe.jpg")
    for name, told in (("loop", "a link to itself"), ("folder", "not a regular file"), ("pipe", "not a regular file")):
        with pytest.raises(ImageError, match=rf"^{name}\.jpg: {told}$"):
            read_file(replace(linked, is_repeated=is_repeated), f"{name}.jpg", ImageError)


def test_a_file_that_is_gone_is_its_pairs_fault_and_a_folder_that_is_gone_the_mounts(linked: Inputs) -> None:
    with pytest.raises(StorageError, match=r"set: the folder of the data set is absent or empty; mount it"):
        read_file(linked, "a.jpg", ImageError)
    (linked.folder / "b.jpg").write_bytes(b"x")
    with pytest.raises(PairChanged, match=r"^a\.jpg: no such file any more$"):
        read_file(linked, "a.jpg", ImageError)
    with pytest.raises(StorageError, match=r"set/deep: this folder of the data set is absent; mount it"):
        read_file(linked, "deep/a.jpg", ImageError)
