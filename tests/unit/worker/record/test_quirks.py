"""The set of planted quirks: what it says that it counts is what the worker counts, quirk by quirk."""

from pathlib import Path

import pytest

from tests.path_pairs import path_pair
from tests.quirks.quirks import Quirk, all_quirks, synthesize_quirks
from tests.unit.worker.pictures import make_recipe
from worker.record.prepare import Quarantine, prepare_example

PAIRS = [quirk for quirk in all_quirks() if quirk.image is not None and quirk.xml is not None]


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("quirks")
    synthesize_quirks(root / "set")
    return root


def test_there_are_more_than_thirty_and_each_has_its_own_name() -> None:
    stems = [quirk.stem for quirk in all_quirks()]
    assert len(set(stems)) == len(stems) > 60


@pytest.mark.parametrize("quirk", PAIRS, ids=lambda quirk: quirk.stem)
def test_each_quirk_counts_what_it_says(quirk: Quirk, data_root: Path) -> None:
    image, xml = f"JPEGImages/{quirk.stem}{quirk.extension}", f"Annotations/{quirk.stem}.xml"
    pair = path_pair(data_root / "set", image, xml, source_id=1)
    outcome = prepare_example(pair, recipe=make_recipe(data_root, labels=("circle", "cross", "triangle")))
    findings = (outcome.finding,) if isinstance(outcome, Quarantine) else outcome.findings
    assert tuple(finding.kind for finding in findings) == quirk.counts


def test_totals_are_those_of_the_table(tmp_path: Path) -> None:
    planted = synthesize_quirks(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2 * planted.pairs + planted.images_without_annotation + planted.annotations_without_image
    assert planted.written + planted.quarantined == planted.pairs == len(PAIRS)
    assert planted.quarantined == planted.counters["annotation_unreadable"] + planted.counters["image_unreadable"]
    assert sum(planted.counters.values()) == sum(len(quirk.counts) for quirk in PAIRS)


def test_same_set_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        synthesize_quirks(tmp_path / name)
    first, second = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("a", "b")
    )
    assert len(first) > len(PAIRS)
    assert first == second
