"""Shards, receipts and lint as short JSON that a person can read in a diff: one line an object, one a finding."""

import json
from collections.abc import Iterable
from typing import Any, Final

import cv2
import numpy as np

from shared.jobs import schema
from shared.jobs.findings import Finding
from worker.record.example import Value, parse_example

# The features that are lists: one row an object, in the order of these columns.
COLUMNS: Final = tuple(schema.LISTS)
LINE_LETTERS: Final = 240


def readable_record(record: bytes) -> dict[str, Any]:
    """A record's features: scalars by key, `objects` as rows of `COLUMNS`; the picture as shape and mean colour."""
    features = parse_example(record)
    scalars = {key: _text(features[key][0]) for key in schema.SCALARS if key not in (schema.ENCODED, schema.SHA256)}
    rows = zip(*(map(_text, features[key]) for key in COLUMNS), strict=True)
    return {**scalars, "objects": [list(row) for row in rows], "picture": _picture(features[schema.ENCODED][0])}


def readable_findings(findings: Iterable[Finding]) -> list[list[Any]]:
    """One row a finding: file, object, rank, kind, found, done."""
    return [
        [finding.file, finding.object_index, finding.rank, finding.kind, finding.found, finding.done]
        for finding in findings
    ]


def dump(value: Any, indent: str = "") -> str:
    """JSON with sorted keys; what fits stands on one line."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, dict | list) or len(indent) + len(line) <= LINE_LETTERS:
        return line
    inner = indent + " "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {dump(value[key], inner)}" for key in sorted(value)]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [inner + dump(element, inner) for element in value]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def _text(value: Value) -> int | float | str:
    return value.decode() if isinstance(value, bytes) else value


def _picture(encoded: Value) -> dict[str, Any]:
    assert isinstance(encoded, bytes)
    pixels = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return {"shape": list(pixels.shape), "mean": [round(float(mean), 1) for mean in pixels.mean((0, 1))]}
