"""A zip or tar with a data set -> a folder with its files, unpacked once and only whole.

An archive may be hostile: nothing is written outside the folder, links and devices are refused, and number, size and
ratio of the unpacked files are limited by counting while writing, not by what the archive says.
"""

import gzip
import json
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from producer.photos.unfinished import unfinished_folder
from producer.progress import Progress
from shared.errors import LintError
from shared.text import counted, printable

MOST_FILES: Final = 1_000_000
MOST_BYTES: Final = 256 * 2**30
# Photos hardly shrink, and XML shrinks to a tenth. A larger ratio is a bomb, except in a small archive.
MOST_RATIO: Final = 100
RATIO_FROM_BYTES: Final = 64 * 2**20

_OF_WINDOWS: Final = ("Thumbs.db", "desktop.ini")

# The flag of a zip entry whose name is UTF-8 (APPNOTE.TXT, 4.4.4, bit 11).
_UTF8_MARK: Final = 0x800

_KINDS: Final = "zip, tar, tar.gz, tar.bz2, tar.xz"
# The file beside the unpacked folder that lists what the folder must hold to be whole.
_NOTE: Final = "unpacked.json"
# The first bytes of zip, gzip, bzip2 and xz.
_BEGINNINGS: Final = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
_ENDING: Final = re.compile(r"\.(zip|tar|tgz|tbz2?|txz|tar\.\w+)$", re.IGNORECASE)
_COPY_BYTES: Final = 2**20
_BROKEN: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
)
# The decoders of gzip and xz, by their first bytes. Not bzip2: Python ignores whatever follows its end.
_DECODERS: Final[Mapping[bytes, Callable[[], Any]]] = {
    b"\x1f\x8b": partial(zlib.decompressobj, wbits=31),
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
}
# How much is read at a time: little, because it may be a thousand times larger when decoded.
_DECODED_BYTES: Final = 2**14
_AGAIN: Final = "download or copy it again, or unpack it yourself"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A regular file of an archive: its name there, and a function that opens its content."""

    name: str
    open: Callable[[], IO[bytes]]


def is_archive(path: Path) -> bool:
    """Whether `path` is a file, and so can only be meant as an archive."""
    return path.is_file()


def unpacked(archive: Path, folder: Path, progress: Progress, *, remedy: str = "unpack it yourself") -> Path:
    """The folder with the files of `archive`, below `folder`; what was unpacked there before is used as it is.

    It is named after the archive, in a folder named by a hash of the archive's content. A copy of the archive under
    another name gets the same folder, because jobs read there. Files that somebody has added, such as XML that a
    converter made, stay. `remedy` is what the error tells a person to do if nothing can be written.

    Raises:
        LintError: It is not an archive of a kind that is read, or is damaged, hostile or too large, or there is no
            room; or somebody changed a file that was unpacked.
    """
    try:
        if not (zipfile.is_zipfile(archive) or tarfile.is_tarfile(archive)):
            with archive.open("rb") as file:
                if file.read(6).startswith(_BEGINNINGS):
                    raise LintError(f"{archive}: it ends too early: download or copy it again")
            raise LintError(f"{archive}: expected a folder with images and Pascal-VOC XML, or one of {_KINDS}")
        with archive.open("rb") as file:
            place = folder / file_digest(file, "sha256").hexdigest()[:16]
        target = _whole(archive, place) or _unpack(archive, place, progress)
        with suppress(OSError):  # it may belong to somebody else, or the data root may be read-only
            # `prune` may remove folders older than a day that no job uses; the job that will use this one comes later.
            os.utime(place)
    except (*_BROKEN, EOFError) as error:
        raise LintError(f"{archive}: {_damage(archive, error)}") from error
    except OSError as error:
        at = f" ({error.filename})" if error.filename and str(error.filename) != str(archive) else ""
        raise LintError(f"{archive}: it cannot be unpacked: {error.strerror or error}{at}; {remedy}") from error
    return target


def _damage(archive: Path, error: Exception) -> str:
    """What is wrong with an archive that could not be read to its end, and what to do."""
    if behind := _bytes_behind(archive):
        return (
            f"{counted(behind, 'byte')} behind the end of what is compressed, expected nothing there: {_AGAIN} "
            "(`tar -xf` warns of them, and unpacks)"
        )
    if isinstance(error, EOFError):
        return "it ends too early: download or copy it again"
    return f"damaged, or of a kind that is not read: {printable(str(error))}; {_AGAIN}"


def _bytes_behind(archive: Path) -> int:
    """How many bytes follow the end of a whole gzip or xz; 0 if it is not whole, and for any other file."""
    with suppress(OSError, zlib.error, lzma.LZMAError), archive.open("rb") as file:
        part = file.read(_DECODED_BYTES)
        beginning = next((each for each in _DECODERS if part.startswith(each)), b"")
        decoder = _DECODERS[beginning]() if beginning else None
        while part and decoder is not None:
            decoder.decompress(part)
            part = (decoder.unused_data if decoder.eof else b"") or file.read(_DECODED_BYTES)
            if part and decoder.eof:
                if not part.startswith(beginning):
                    return archive.stat().st_size - file.tell() + len(part)
                decoder = _DECODERS[beginning]()  # several gzip or xz in a row count as one
    return 0


def bare_name(archive: Path) -> str:
    """The archive's name without the extension of an archive."""
    return _ENDING.sub("", archive.name) or "set"


def names_archive(name: str) -> bool:
    """Whether a file of this name is meant as an archive."""
    return _ENDING.search(name) is not None


def _folder_in(place: Path, archive: Path) -> Path:
    """The folder that was unpacked in `place`, whatever the archive was called then; otherwise where it will be."""
    target = place / bare_name(archive)
    others = sorted(path for path in place.glob("[!.@]*") if path.is_dir())  # not @eaDir, which a Synology adds
    return target if target.is_dir() or not others else others[0]


def _whole(archive: Path, place: Path) -> Path | None:
    """The unpacked folder if all its files are still there; None otherwise. It may have more files.

    Raises:
        LintError: A file has another size: to unpack again would undo what somebody did.
    """
    target = _folder_in(place, archive)
    try:
        noted = json.loads((place / _NOTE).read_bytes())["sizes"]
    except (OSError, ValueError, KeyError):
        return None
    found = _sizes_in(target)
    if changed := sorted(name for name in noted.keys() & found.keys() if noted[name] != found[name] and _is_read(name)):
        count = counted(len(changed), "unpacked file")
        raise LintError(
            f"{archive}: {count} changed since, such as {target / _shown(changed[0])}: give {target} instead of the "
            "archive to use what is there, or remove what changed to have it as it was"
        )
    return target if noted.keys() <= found.keys() else None


def _is_read(name: str) -> bool:
    """Whether a file belongs to the data set; file managers write files of their own into the folders they show."""
    return not any(part.startswith(".") for part in name.split("/")) and PurePosixPath(name).name not in _OF_WINDOWS


def _sizes_in(folder: Path) -> dict[str, int]:
    """Bytes of each file below `folder`, by its path there."""
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _unpack(archive: Path, place: Path, progress: Progress) -> Path:
    """Unpack beside `place`, rename to `place` when all is there, and return the folder in it that has the files."""
    place.parent.mkdir(parents=True, exist_ok=True)
    target = _folder_in(place, archive)
    with unfinished_folder(place.parent, ".unpacking-") as parent:
        work = parent / place.name
        inside = work / target.name
        inside.mkdir(parents=True)
        with _members(archive) as members:
            _write_all(archive, members, inside, progress)
        (work / _NOTE).write_text(json.dumps({"sizes": _sizes_in(inside)}))
        _keep_added(place, target, inside)
        for path in (work, inside, *inside.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # workers may run as another user
        # Another command may have unpacked the same archive meanwhile, and its job may read there already.
        if (whole := _whole(archive, place)) is not None:
            return whole
        shutil.rmtree(place, ignore_errors=True)  # it is not whole
        try:
            work.rename(place)
        except OSError:
            if _whole(archive, place) is None:  # otherwise another command was faster
                raise
    return _folder_in(place, archive)


def _keep_added(place: Path, target: Path, inside: Path) -> None:
    """Copy the files that somebody has added to the folder unpacked before: they are not in the archive."""
    for name in _sizes_in(target) if (place / _NOTE).is_file() else ():
        if not (inside / name).exists():
            (inside / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target / name, inside / name)


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    """The regular files of an archive, in its order."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            yield _zip_members(archive, opened)
    else:
        with tarfile.open(archive) as tar:
            yield _tar_members(archive, tar)


def _zip_members(archive: Path, opened: zipfile.ZipFile) -> Iterator[_Member]:
    for entry in opened.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)  # 0 if the zip was not made on Unix
        if entry.flag_bits & 1:
            raise LintError(f"{archive}: {_shown(entry.filename)} is encrypted: unpack it yourself")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _not_a_file(archive, entry.filename)
        if not entry.is_dir():
            yield _Member(name=_zip_name(entry), open=lambda entry=entry: opened.open(entry))  # type: ignore[misc]


def _zip_name(entry: zipfile.ZipInfo) -> str:
    """The name of a file in a zip; macOS writes UTF-8 without the flag for it, which Python then decodes as cp437."""
    if entry.flag_bits & _UTF8_MARK:
        return entry.filename
    try:
        return entry.filename.encode("cp437").decode()
    except UnicodeError:
        return entry.filename


def _tar_members(archive: Path, tar: tarfile.TarFile) -> Iterator[_Member]:
    for entry in tar:
        if not (entry.isreg() or entry.isdir()):
            raise _not_a_file(archive, entry.name)
        if entry.isreg():
            # For a regular file `extractfile` never returns None.
            yield _Member(name=entry.name, open=lambda entry=entry: tar.extractfile(entry))  # type: ignore[misc,arg-type]
    _check_end(archive, tar)


def _check_end(archive: Path, tar: tarfile.TarFile) -> None:
    """Refuse a tar that was not read to its end: `tarfile` stops silently where a header is cut or damaged.

    The end is a block of zeros. GNU tar ignores what follows it. Here that is refused, because a hole in a damaged file
    looks like an end, and joined tars have more files. Reading on also makes gzip and xz compare their checksums, which
    they do at the end of the file.

    Raises:
        LintError: There is no such block, or more than zeros follow.
    """
    file: IO[bytes] = tar.fileobj  # type: ignore[assignment]
    file.seek(tar.offset)
    read = 0
    while part := file.read(_COPY_BYTES):
        read += len(part)
        _check_size(archive, archive.stat().st_size, read)
        if read >= tarfile.BLOCKSIZE and part.strip(b"\0"):
            expected = f"at byte {tar.offset:,} of the tar expected a file, or zeros up to the end"
            raise LintError(f"{archive}: damaged, or several tars in one: {expected}; {_AGAIN} (`tar -xif`)")
    if read < tarfile.BLOCKSIZE:
        raise LintError(f"{archive}: it ends too early, without the zeros that end a tar: {_AGAIN}")


def _not_a_file(archive: Path, name: str) -> LintError:
    return LintError(f"{archive}: {_shown(name)} is a link or a device; expected files and folders only")


def _write_all(archive: Path, members: Iterator[_Member], folder: Path, progress: Progress) -> None:
    packed, written = archive.stat().st_size, 0
    for count, member in enumerate(members, start=1):
        if count > MOST_FILES:
            raise LintError(f"{archive}: more than {MOST_FILES:,} files; unpack it yourself if that is right")
        target = folder / _safe_path(archive, member.name)
        if target.is_file() and zipfile.is_zipfile(archive):  # in a tar the later one replaces it: `tar -u` appends
            twice = f"{archive}: {_shown(member.name)} is in it more than once, expected each file once"
            raise LintError(f"{twice}: pack the folder anew, or unpack it yourself; nothing was unpacked")
        target.parent.mkdir(parents=True, exist_ok=True)
        with member.open() as source, target.open("wb") as file:
            while part := source.read(_COPY_BYTES):
                written += len(part)
                _check_size(archive, packed, written)
                file.write(part)
        progress("unpacking", count, 0)


def _check_size(archive: Path, packed: int, written: int) -> None:
    if written > MOST_BYTES:
        raise LintError(f"{archive}: it unpacks to more than {MOST_BYTES >> 30} GiB; unpack it yourself")
    if written > RATIO_FROM_BYTES and written > MOST_RATIO * packed:
        raise LintError(f"{archive}: it unpacks to more than {MOST_RATIO} times its size, as no photos do; refused")


def _safe_path(archive: Path, name: str) -> PurePosixPath:
    """A member's path below the folder; back slashes are separators, as some Windows programs write them."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or re.match(r"^[A-Za-z]:", name) or "\0" in name:
        raise LintError(f"{archive}: {_shown(name)} leads out of the archive; nothing was unpacked")
    return path


def _shown(name: str) -> str:
    return printable(name)[:200]
