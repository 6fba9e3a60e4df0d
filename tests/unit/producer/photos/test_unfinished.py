"""A folder that is being written beside its place: one of a killed command goes, one that is in use stays."""

import subprocess
import sys
from pathlib import Path

from producer.photos.unfinished import unfinished_folder

PREFIX = ".corrected-"
WRITES = """
import sys, time
from pathlib import Path
from producer.photos.unfinished import unfinished_folder
with unfinished_folder(Path(sys.argv[1]), ".corrected-") as folder:
    (folder / "copy/deep").mkdir(parents=True)
    (folder / "copy/deep/a.jpg").write_bytes(b"half")
    (folder / "copy/deep").chmod(0o500)
    print(folder.name, flush=True)
    time.sleep(600)
"""


def started(parent: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process that writes, and its folder."""
    process = subprocess.Popen([sys.executable, "-c", WRITES, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, parent / process.stdout.readline().strip()


def killed(parent: Path) -> Path:
    process, folder = started(parent)
    process.kill()
    process.communicate()
    return folder


def test_what_a_killed_command_left_goes_and_what_another_is_writing_stays(tmp_path: Path) -> None:
    left = killed(tmp_path)
    assert left.is_dir()
    process, busy = started(tmp_path)
    try:
        assert not left.exists(), "the next command of its kind removes it"
        with unfinished_folder(tmp_path, PREFIX) as ours:
            assert sorted(tmp_path.iterdir()) == sorted([busy, ours])
        assert (busy / "copy/deep/a.jpg").read_bytes() == b"half"
    finally:
        process.kill()
        process.communicate()


def test_folders_of_another_name_or_with_more_in_them_are_let_be(tmp_path: Path) -> None:
    for name in (".corrected-by-hand", ".corrected-abcdefgh/one", ".corrected-abcdefgh/two", ".other-abcdefgh/copy"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".corrected-12345678").symlink_to(tmp_path / ".other-abcdefgh")
    before = sorted(tmp_path.rglob("*"))
    with unfinished_folder(tmp_path, PREFIX):
        pass
    assert sorted(tmp_path.rglob("*")) == before
