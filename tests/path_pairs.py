"""Pairs of files that lie in a folder, as a plan would name them: with the fingerprint of what is in them."""

from pathlib import Path

from shared.jobs.fingerprint import fingerprint_pair, sample_file
from shared.jobs.job import PathPair


def path_pair(folder: Path, image: str, annotation: str | None, *, source_id: int) -> PathPair:
    """The pair of the files at these paths below `folder`."""
    xml = b"" if annotation is None else (folder / annotation).read_bytes()
    fingerprint = fingerprint_pair(xml, sample_file(str(folder / image)).digest).hex()
    return PathPair(image=image, annotation=annotation, source_id=source_id, fingerprint=fingerprint)
