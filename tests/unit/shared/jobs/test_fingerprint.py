"""The fingerprint of a pair: one value for producer and worker, and the same one for ever."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.jobs.fingerprint import fingerprint_pair, sample_content, sample_file
from shared.jobs.job import ShardTask
from tests.golden.regenerate import GOLDEN, VOC
from tests.path_pairs import path_pair

KIB = 1024


def pattern(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


@given(st.integers(0, 24 * KIB), st.integers(0, 2**32))
@example(4 * KIB, 0)
@example(8 * KIB, 0)
@settings(deadline=None)  # it writes a file
def test_a_file_and_its_content_have_one_sample(tmp_path_factory: pytest.TempPathFactory, size: int, seed: int) -> None:
    content = Random(seed).randbytes(size)
    path = tmp_path_factory.getbasetemp() / "sampled"
    path.write_bytes(content)
    assert sample_file(str(path)) == sample_content(content)


@pytest.mark.parametrize("size", [4 * KIB - 1, 4 * KIB, 4 * KIB + 1, 6 * KIB, 8 * KIB, 20 * KIB])
def test_every_byte_of_both_ends_and_the_size_count(size: int) -> None:
    content = pattern(size)
    seen = {sample_content(each).digest for each in (content, content + b"\0", content[:-1])}
    places = sorted({0, min(size, 4 * KIB) - 1, max(0, size - 4 * KIB), size - 1})
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1
        seen.add(sample_content(bytes(changed)).digest)
    assert len(seen) == 3 + len(places)


@pytest.mark.parametrize(
    ("size", "fingerprint"),
    [
        (0, "67fd047d9021dbf7"),
        (5, "d87f4e5a9bae53ed"),
        (4096, "98b2c5ec0fdc7244"),
        (6000, "fc76c95f4fec21a8"),
        (8192, "12f534072e71961f"),
        (20000, "37b5ebe008975ab6"),
    ],
)
def test_the_values_in_the_stores_of_today_stay(size: int, fingerprint: str) -> None:
    assert fingerprint_pair(b"<annotation/>", sample_content(pattern(size)).digest).hex() == fingerprint


def test_the_plan_of_the_first_version_has_the_fingerprints_of_its_photos() -> None:
    lines = (GOLDEN / "store-0.1.0/jobs/upgraded/plan.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [pair for line in lines for pair in ShardTask.model_validate_json(line).pairs]
    assert len(pairs) == 12
    for pair in pairs:
        assert path_pair(VOC, pair.image, pair.annotation, source_id=pair.source_id) == pair


def test_xml_and_picture_cannot_be_mistaken_for_each_other() -> None:
    assert (
        len({fingerprint_pair(*parts) for parts in ((b"ab", b"c"), (b"a", b"bc"), (b"", b"abc"), (b"abc", b""))}) == 4
    )
