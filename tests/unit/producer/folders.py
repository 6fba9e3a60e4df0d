"""Small VOC folders made for one test: files with the given bytes, XML with the given objects."""

from collections.abc import Iterable
from pathlib import Path

from producer.dataset.lint import LintedFolder, lint_folder
from producer.jobs.submit import Admission, Request, lint_request, submit
from producer.progress import Progress, no_progress
from shared.jobs.findings import Finding
from shared.specs.data import JobSpec
from shared.storage import Storage

# What a JPEG begins with: lint looks no further where it does not have to.
JPEG = b"\xff\xd8\xff"

Object = tuple[str, float, float, float, float]
CAT: Object = ("cat", 10, 10, 50, 50)


def voc_xml(
    objects: Iterable[Object] = (("cat", 10, 10, 50, 50),),
    *,
    size: tuple[int, int] | None = (100, 80),
    filename: str = "",
    path: str = "",
) -> bytes:
    """A VOC file; an object is (name, xmin, ymin, xmax, ymax) in pixels."""
    parts = ["<annotation>"]
    parts += [f"<filename>{filename}</filename>"] if filename else []
    parts += [f"<path>{path}</path>"] if path else []
    parts += [f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"] if size else []
    for name, *box in objects:
        corners = "".join(f"<{key}>{value}</{key}>" for key, value in zip(CORNERS, box, strict=True))
        parts.append(f"<object><name>{name}</name><bndbox>{corners}</bndbox></object>")
    return "".join([*parts, "</annotation>"]).encode()


CORNERS = ("xmin", "ymin", "xmax", "ymax")


def write(root: Path, path: str, content: bytes | str = b"") -> Path:
    """Write one file below `root`, with its folders."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    return target


def write_pair(root: Path, image: str, annotation: str, xml: bytes | None = None) -> None:
    """Write what begins as a JPEG (behind that its path, so that no two are equal) and its XML."""
    write(root, image, JPEG + f"picture {image}".encode())
    write(root, annotation, voc_xml() if xml is None else xml)


def write_objects(root: Path, stem: str, *objects: Object) -> None:
    """Write the pair of `stem` with these objects."""
    write_pair(root, f"{stem}.jpg", f"{stem}.xml", voc_xml(objects))


def lint(root: Path, **spec: object) -> LintedFolder:
    """What lint finds under options of a job; all pictures go to train by default."""
    return lint_folder(root, spec=JobSpec.model_validate({"split": (100, 0, 0), **spec}))


# What lint says of every set as small as those of the tests, and of the --split that `lint` here always asks for.
OF_SMALL_SETS = ("set_small", "class_small", "split_not_used")


def findings(linted: LintedFolder) -> list[Finding]:
    """All findings but those that a set made for one test has for its size."""
    return [finding for finding in linted.findings if finding.kind not in OF_SMALL_SETS]


def kinds(linted: LintedFolder) -> dict[str, list[str]]:
    """Kind of finding → the files it names, without those of every small set."""
    named: dict[str, list[str]] = {}
    for finding in findings(linted):
        named.setdefault(finding.kind, []).append(finding.file)
    return named


def lint_and_submit(
    request: Request, *, storage: Storage, data_root: Path, progress: Progress = no_progress
) -> Admission:
    """What the command `submit` does before anything runs."""
    linted = lint_request(request, data_root=data_root, progress=progress)
    return submit(request, linted, storage=storage, data_root=data_root, progress=progress)
