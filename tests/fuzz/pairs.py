"""Random damage to XML and image bytes: `python -m tests.fuzz.pairs [--cases 100000] [--seed 0]`.

Every case is a pair of the planted quirks with bytes flipped, cut, doubled, spliced or replaced, read by the worker's
own `prepare_example` from real files. The run fails if a case raises what no rule foresees, takes longer than five
seconds of CPU, ends in no counter or in two, or loses an object; and if memory after the last case is more than 20 MB
above that after the first 5,000. A crash of the decoder ends this process, which is the loudest failure of all.
"""

import argparse
import faulthandler
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import cv2
import psutil

from shared.jobs.job import Job
from shared.specs.data import JobSpec
from tests.path_pairs import path_pair
from tests.quirks.quirks import Quirk, all_quirks
from worker.record.prepare import PreparedExample, Quarantine, Recipe, prepare_example, recipe_of

WARM_CASES: Final = 5_000
GROWTH_LIMIT_MB: Final = 20
CASE_LIMIT_S: Final = 5.0
HANG_LIMIT_S: Final = 600
# Damaged headers claim any size; the cap keeps the run about reading, not about filling memory.
MAX_PIXELS: Final = 4_000_000

TOKENS: Final = (
    *(b"<", b">", b"&", b"]]>", b"<!--", b"<object>", b"</object>", b"<bndbox>", b"nan", b"1e999", b"-"),
    *(b"999999999999", b"<!DOCTYPE annotation>", b"&lt;", b"\xff", b"\xff\xd8", b"\xff\xd9", b"\xff\xda"),
    *(b"\xff\xc0", b"\xff\xc2", b"\xff\xdd", bytes(16), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"IHDR", b"IDAT"),
    *(
        b"IEND",
        b"PLTE",
        b"tRNS",
        b"acTL",
        b"Exif\0\0",
        b"II*\0",
        b"MM\0*",
        b"RIFF",
        b"VP8 ",
        b"VP8L",
        b"VP8X",
        b"GIF89a",
    ),
)
# What may stand where a number or a word of an annotation stood: the XML stays well formed.
TEXTS: Final = (
    *(
        b"nan",
        b"inf",
        b"-inf",
        b"1e999",
        b"1e308",
        b"-1e308",
        b"-1",
        b"0",
        b"0.5",
        b"1",
        b"1e-9",
        b"120",
        b"80",
        b"121",
    ),
    *(
        b"",
        b" ",
        b"x",
        b"true",
        b"False",
        b"+3",
        b"1_0",
        b"0x10",
        b"12,5",
        b"&#48;",
        b"&lt;",
        b"<b>5</b>",
        b"<!-- -->7",
    ),
    *(b"<![CDATA[9]]>", b"circle", b"Circle", b"bird", "\u00e9".encode(), b"99999999999999999999"),
)
_TEXT: Final = re.compile(rb">([^<>]*)</")


@dataclass(slots=True)
class FuzzResult:
    """What a run counted; `growth_mb` is None where it was too short to tell."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    growth_mb: float | None = None


def bend(xml: bytes, rng: random.Random) -> bytes:
    """An annotation with one to four of its texts replaced."""
    for _ in range(rng.randint(1, 4)):
        places = list(_TEXT.finditer(xml))
        if not places:
            break
        place = rng.choice(places)
        xml = xml[: place.start(1)] + rng.choice(TEXTS) + xml[place.end(1) :]
    return xml


def damage(content: bytes, rng: random.Random, corpus: list[bytes]) -> bytes:
    """`content` after one to three random changes."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(7)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + rng.randint(1, 64)]
        elif kind == 2:
            changed[at:at] = rng.randbytes(rng.randint(1, 32))
        elif kind == 3:
            token = rng.choice(TOKENS)
            changed[at : at + (len(token) if rng.random() < 0.7 else 0)] = token
        elif kind == 4 and rng.random() < 0.3:
            del changed[at:]
        elif kind == 5:
            other = rng.choice(corpus)
            start = rng.randrange(len(other) + 1)
            changed[at : at + rng.randint(0, 64)] = other[start : start + rng.randint(1, 256)]
        else:
            changed[at : at + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", rng.randbytes(4)))
    return bytes(changed[: 2**20])


def make_recipe(root: Path) -> Recipe:
    """Of a job with default options over `root`, but for the pixel cap."""
    labels = ("circle", "cross", "triangle")
    spec = JobSpec(image_size=64, max_pixels=MAX_PIXELS)
    job = Job(job="fuzz", dataset=".", folder=".", spec=spec, run=None, labels=labels, splits={}, request_digest="")
    return recipe_of(job, root)


def run_cases(
    cases: int, seed: int, root: Path, progress: Callable[[int, FuzzResult], None] = lambda _done, _result: None
) -> FuzzResult:
    """Read `cases` damaged pairs from files below `root`.

    Raises:
        AssertionError: A case broke one of the promises; its two files are left in `root`.
    """
    rng, result, recipe = random.Random(seed), FuzzResult(), make_recipe(root)
    quirks = [quirk for quirk in all_quirks() if quirk.xml is not None and quirk.image is not None]
    images = {quirk.stem: quirk.image() for quirk in quirks if quirk.image is not None}
    xmls, pictures = [quirk.xml or b"" for quirk in quirks], list(images.values())
    process, warm_mb = psutil.Process(), None
    for case in range(1, cases + 1):
        quirk = rng.choice(quirks)
        xml, image = quirk.xml or b"", images[quirk.stem]
        target = rng.random()
        if target < 0.6:
            xml = bend(xml, rng) if target < 0.4 else damage(xml, rng, xmls)
        if target > 0.5:
            image = damage(image, rng, pictures)
        _run_case(quirk, xml, image, root, recipe, result)
        if case == min(WARM_CASES, cases):
            warm_mb = process.memory_info().rss / 2**20
        progress(case, result)
    if cases > WARM_CASES and warm_mb is not None:
        result.growth_mb = process.memory_info().rss / 2**20 - warm_mb
        assert result.growth_mb <= GROWTH_LIMIT_MB, f"memory grew by {result.growth_mb:.1f} MB"
    assert sum(result.outcomes.values()) == cases
    return result


def _run_case(quirk: Quirk, xml: bytes, image: bytes, root: Path, recipe: Recipe, result: FuzzResult) -> None:
    (root / "a.xml").write_bytes(xml)
    (root / "a.jpg").write_bytes(image)
    pair = path_pair(root, "a.jpg", "a.xml", source_id=1)
    start = time.process_time()
    outcome = prepare_example(pair, recipe=recipe)
    took_s = time.process_time() - start
    assert took_s < CASE_LIMIT_S, f"{quirk.stem}: {took_s:.1f} s of CPU"
    result.slowest_s = max(result.slowest_s, took_s)
    if isinstance(outcome, Quarantine):
        assert outcome.finding.rank == "quarantined"
        result.outcomes["quarantined"] += 1
        result.findings[outcome.finding.kind] += 1
        return
    assert isinstance(outcome, PreparedExample)
    assert outcome.record
    lost = sum(finding.rank == "dropped" or finding.kind == "class_unknown" for finding in outcome.findings)
    assert outcome.objects_read == len(outcome.objects) + lost, f"{quirk.stem}: an object is in no counter"
    result.outcomes["written"] += 1
    result.findings.update(finding.kind for finding in outcome.findings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faulthandler.enable()
    cv2.setNumThreads(1)

    def progress(done: int, result: FuzzResult) -> None:
        if done % 1_000 == 0:
            # A case that hangs ends the run, with the place where it hangs.
            faulthandler.dump_traceback_later(HANG_LIMIT_S, exit=True)
        if done % 10_000 == 0:
            print(f"{done} cases: {dict(result.outcomes)}, slowest {result.slowest_s:.2f} s", file=sys.stderr)

    with tempfile.TemporaryDirectory() as root:
        result = run_cases(arguments.cases, arguments.seed, Path(root), progress)
    print(f"cases      {sum(result.outcomes.values())} (seed {arguments.seed})")
    print(f"outcomes   {dict(result.outcomes)}")
    print(f"findings   {dict(sorted(result.findings.items()))}")
    print(f"slowest    {result.slowest_s:.2f} s (limit {CASE_LIMIT_S:.0f})")
    print(f"growth     {result.growth_mb or 0:.1f} MB after the first {WARM_CASES} (limit {GROWTH_LIMIT_MB})")


if __name__ == "__main__":
    main()
