"""The golden pairs become the golden records: a change of any rule shows here first."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.regenerate import EXPECTED, SPECS, expected_of, opencv_build

GOLDEN: dict[str, Any] = json.loads(Path(EXPECTED).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SPECS)
def test_golden_pairs_become_the_golden_records(name: str) -> None:
    found, expected = expected_of(SPECS[name]), GOLDEN[name]
    assert found["counters"] == expected["counters"]
    assert set(found["records"]) == set(expected["records"])
    for shard, records in expected["records"].items():
        for record, golden in zip(found["records"][shard], records, strict=True):
            picture = record.pop("picture")
            assert picture["shape"] == golden["picture"]["shape"]
            # Another build of OpenCV may round a pixel otherwise.
            assert picture["mean"] == pytest.approx(golden["picture"]["mean"], abs=0.5)
            assert record == {key: value for key, value in golden.items() if key != "picture"}


@pytest.mark.skipif(opencv_build() != GOLDEN["opencv"], reason="JPEG bytes are those of one OpenCV on one kind of CPU")
@pytest.mark.parametrize("name", SPECS)
def test_golden_shards_have_the_golden_bytes(name: str) -> None:
    assert expected_of(SPECS[name])["sha256"] == GOLDEN[name]["sha256"]
