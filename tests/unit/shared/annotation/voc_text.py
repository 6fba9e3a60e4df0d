"""Annotations as text, and what is read of them."""

from shared.annotation.reader import read_annotation
from shared.annotation.voc import Annotation
from shared.specs.data import JobSpec

SIZE = "<size><width>640</width><height>480</height><depth>3</depth></size>"


def voc_object(name: str = "cat", box: str | None = None, extra: str = "") -> str:
    corners = box if box is not None else "<xmin>10</xmin><ymin>20</ymin><xmax>110</xmax><ymax>220</ymax>"
    return f"<object><name>{name}</name>{extra}<bndbox>{corners}</bndbox></object>"


def corners(*values: object) -> str:
    return "".join(
        f"<{key}>{value}</{key}>" for key, value in zip(("xmin", "ymin", "xmax", "ymax"), values, strict=True)
    )


def read(body: str, **options: object) -> Annotation:
    spec = JobSpec.model_validate(options)
    return read_annotation(f"<annotation>{body}</annotation>".encode(), file="a.xml", spec=spec)


def kinds(annotation: Annotation) -> list[str]:
    return [finding.kind for finding in annotation.findings]
