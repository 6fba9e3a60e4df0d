"""The files of a data set, in a folder or a bucket -> a local copy, and when each original had last changed."""

import shutil
from pathlib import Path, PurePosixPath
from typing import Final

from producer.dataset.scan import Walk
from producer.photos.bucket import latest_change
from producer.photos.copied import NOTE, CopiedPhotos
from producer.progress import Progress
from shared.errors import StorageError
from shared.storage import BucketFolder, DataFolder
from shared.storage.ahead import Admit, Ahead

_TOLD_EVERY: Final = 200


def copy_tree(dataset: DataFolder, data_root: DataFolder, folder: Path, progress: Progress) -> dict[str, int]:
    """Copy all files but our own note into `folder`, which does not exist yet.

    Links that lint follows, to what lies in `data_root`, are followed; other links are left out.

    Returns:
        When each file had last changed, in ns of Unix time, by path; without files that changed during the copying.

    Raises:
        LintError: A folder cannot be listed.
        StorageError: A file cannot be copied or fetched.
    """
    if isinstance(dataset, BucketFolder):
        return _fetched(dataset, folder, progress)
    return _copied(dataset, folder, _scanned(dataset, data_root))


def _scanned(dataset: Path, data_root: DataFolder) -> set[Path]:
    """The folders and files that lint finds."""
    found = set[Path]()
    for each in Walk(dataset, data_root):
        inside = dataset / each.path
        found |= {inside, *(inside / name for name in (*each.images, *each.annotations, *each.lists))}
    return found


def _copied(dataset: Path, folder: Path, scanned: set[Path]) -> dict[str, int]:
    changed, known = dict[str, int](), CopiedPhotos(dataset)

    def ignored(source: str, names: list[str]) -> set[str]:
        paths = [Path(source, name) for name in names]
        return {path.name for path in paths if path.name == NOTE or (path.is_symlink() and path not in scanned)}

    def copy(source: str, to: str) -> str:
        before = Path(source).stat()
        shutil.copy2(source, to)
        if Path(source).stat().st_ctime_ns == before.st_ctime_ns:
            path = Path(to).relative_to(folder).as_posix()
            changed[path] = round(known.changed_at(path, before) * 1e9)
        return to

    try:
        shutil.copytree(dataset, folder, copy_function=copy, ignore=ignored)
    except shutil.Error as error:
        ((source, _, reason), *_) = error.args[0]
        raise StorageError(f"{source}: cannot be copied: {reason}") from error
    return changed


def _fetched(dataset: BucketFolder, folder: Path, progress: Progress) -> dict[str, int]:
    # No key can lead out of the copy: the client refuses a bucket with `..` in a key.
    before = dict(dataset.files())
    paths = [path for path in before if PurePosixPath(path).name != NOTE]

    def fetch(path: str, admit: Admit) -> bytes:
        return dataset.fetch(path, None, admit).content

    with Ahead(paths, fetch) as contents:
        for done, (path, content) in enumerate(zip(paths, contents, strict=True), start=1):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            if done % _TOLD_EVERY == 0 or done == len(paths):
                progress("copied", done, len(paths))
    after = dict(dataset.files())
    return {path: round(latest_change(after[path]) * 1e9) for path in paths if after.get(path) == before[path]}
