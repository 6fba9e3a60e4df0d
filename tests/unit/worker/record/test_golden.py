"""The golden pairs become the golden records and findings: a change of any rule shows here first."""

import json
from typing import Any

import pytest

from shared.jobs.schema import SHARD_FORMAT
from tests.golden.regenerate import (
    EXPECTED,
    EXPECTED_QUIRKS,
    SPECS,
    bytes_digest,
    expected_of,
    expected_quirks,
    opencv_build,
    pinned,
    pinned_formats,
)
from tests.quirks.quirks import all_quirks

GOLDEN: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
QUIRKS: dict[str, Any] = json.loads(EXPECTED_QUIRKS.read_text(encoding="utf-8"))

same_opencv = pytest.mark.skipif(
    opencv_build() != GOLDEN["opencv"], reason="JPEG bytes are those of one OpenCV on one kind of CPU"
)


@pytest.fixture(scope="module")
def found_quirks() -> dict[str, Any]:
    return expected_quirks()


def check_record(found: dict[str, Any] | None, golden: dict[str, Any] | None) -> None:
    """Every feature equal; the picture's colour nearly, because another build of OpenCV may round a pixel otherwise."""
    if found is None or golden is None:
        assert found is golden
        return
    pictures = found["picture"], golden["picture"]
    assert pictures[0]["shape"] == pictures[1]["shape"]
    assert pictures[0]["mean"] == pytest.approx(pictures[1]["mean"], abs=0.5)
    assert found | {"picture": None} == golden | {"picture": None}


@pytest.mark.parametrize("name", SPECS)
def test_golden_pairs_become_the_golden_records(name: str) -> None:
    found, expected = expected_of(SPECS[name]), GOLDEN[name]
    assert found["counters"] == expected["counters"]
    assert set(found["records"]) == set(expected["records"])
    for shard, records in expected["records"].items():
        for record, golden in zip(found["records"][shard], records, strict=True):
            check_record(record, golden)


def test_golden_bytes_are_those_of_the_shard_format() -> None:
    """Other bytes need another number: shards of equal numbers are lent from job to job as equal."""
    assert GOLDEN["shard_format"] == QUIRKS["shard_format"] == SHARD_FORMAT
    assert pinned_formats()[str(SHARD_FORMAT)] == bytes_digest(GOLDEN, QUIRKS)


def test_golden_bytes_cannot_be_made_anew_under_the_same_number() -> None:
    changed = {**QUIRKS, "sha256": "0" * 64}
    with pytest.raises(SystemExit, match="raise SHARD_FORMAT"):
        pinned(bytes_digest(GOLDEN, changed), SHARD_FORMAT)
    formats = pinned(bytes_digest(GOLDEN, changed), SHARD_FORMAT + 1)
    assert formats[str(SHARD_FORMAT)] == bytes_digest(GOLDEN, QUIRKS)
    assert formats[str(SHARD_FORMAT + 1)] == bytes_digest(GOLDEN, changed)


@pytest.mark.parametrize("name", SPECS)
def test_golden_annotations_have_the_golden_bytes(name: str) -> None:
    assert expected_of(SPECS[name])["annotations_sha256"] == GOLDEN[name]["annotations_sha256"]


@same_opencv
@pytest.mark.parametrize("name", SPECS)
def test_golden_shards_have_the_golden_bytes(name: str) -> None:
    assert expected_of(SPECS[name])["sha256"] == GOLDEN[name]["sha256"]


def test_every_planted_pair_is_golden() -> None:
    planted = [quirk.stem for quirk in all_quirks() if quirk.image is not None and quirk.xml is not None]
    assert sorted(QUIRKS["pairs"]) == planted
    assert len(planted) >= 30


@pytest.mark.parametrize("stem", QUIRKS["pairs"])
def test_each_golden_quirk_becomes_its_record_and_findings(stem: str, found_quirks: dict[str, Any]) -> None:
    found, golden = found_quirks["pairs"][stem], QUIRKS["pairs"][stem]
    assert found["findings"] == golden["findings"]
    check_record(found["record"], golden["record"])


@pytest.mark.parametrize("part", ["counters", "lint"])
def test_golden_quirks_are_counted_and_linted_as_before(part: str, found_quirks: dict[str, Any]) -> None:
    assert found_quirks[part] == QUIRKS[part]


@same_opencv
def test_the_shard_of_golden_quirks_has_the_golden_bytes(found_quirks: dict[str, Any]) -> None:
    assert found_quirks["sha256"] == QUIRKS["sha256"]
    assert found_quirks["annotations_sha256"] == QUIRKS["annotations_sha256"]
