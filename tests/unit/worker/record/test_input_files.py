"""A file that the system refuses: whose fault it is, at the first attempt and later. By real refusals."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import AnnotationError, ImageError, StorageError
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
