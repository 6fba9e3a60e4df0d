"""Speed of the producer's way from a folder to messages: `python tests/bench/scan_plan.py`.

Prints each figure beside its floor from the issue and ends with 1 where one does not hold. Each part runs in a process
of its own, so that its memory is its own.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from producer.dataset.box_sizes import BoxSizes
from producer.dataset.findings import Findings
from producer.dataset.lint import LintedFolder
from producer.dataset.pairing import Pairing, pair_files
from producer.dataset.read_pairs import read_pairs
from producer.dataset.scan import Walk
from producer.dataset.split import assign_splits
from producer.jobs.plan import PlanLines, plan_job
from shared.annotation.parse import parse_xml
from shared.jobs.labels import label_map
from shared.specs.data import JobSpec

FILES = 100_000
PAIRS = 1_000_000
XML_FILES = 10_000

# An ordinary VOC file of 13 objects, as BCCD's are.
OBJECT = """<object><name>RBC</name><pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult>
<bndbox><xmin>{0}</xmin><ymin>81</ymin><xmax>555</xmax><ymax>182</ymax></bndbox></object>\n"""
XML = (
    "<annotation><folder>JPEGImages</folder><filename>photo.jpg</filename><size><width>640</width>"
    f"<height>480</height><depth>3</depth></size>{''.join(OBJECT.format(x) for x in range(13))}</annotation>"
)


# Where the picture and the XML of pair {0} lie; {1} is one of a hundred folders.
LAYOUTS = {
    "devkit": ("JPEGImages/{0:06d}.jpg", "Annotations/{0:06d}.xml"),
    "one folder": ("{0:06d}.jpg", "{0:06d}.xml"),
    "side by side in 100 folders": ("{1:03d}/{0:06d}.jpg", "{1:03d}/{0:06d}.xml"),
    "by unique stem": ("pictures here/{0:06d}.jpg", "boxes/{1:03d}/{0:06d}.xml"),
}


def make_files(root: Path, count: int, layout: str) -> None:
    """`count` files, half of them empty pictures, half XML without content."""
    for index in range(count // 2):
        for name in LAYOUTS[layout]:
            path = f"{root}/{name.format(index, index % 100)}"
            if index < 100:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def best_of(times: int, work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest of some runs. CPU time (user and system) unless told: others may be using the machine."""
    seconds = []
    for _ in range(times):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def scan_once(root: Path) -> Pairing:
    return pair_files(Walk(root, root), lambda paths: [()] * len(paths))


def scan_and_pair() -> dict[str, tuple[float, float]]:
    """Files a second by the clock and by CPU time, by layout; all names are in the kernel's cache."""
    rates = {}
    for layout in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            make_files(root, FILES, layout)
            pairs = len(scan_once(root).pairs)
            if pairs != FILES // 2:
                raise SystemExit(f"{layout}: {pairs} pairs of {FILES // 2}")
            scan = partial(scan_once, root)
            rates[layout] = (FILES / best_of(5, scan, time.perf_counter), FILES / best_of(3, scan))
    return rates


def plan_a_million() -> dict[str, float]:
    """CPU seconds and MB of splitting, cutting and building the messages of pairs that were read already."""
    pairs = [(f"JPEGImages/photo_{index:07d}.jpg", f"Annotations/photo_{index:07d}.xml") for index in range(PAIRS)]
    spec = JobSpec()
    start = time.process_time()
    images = [image for image, _ in pairs]
    splits = assign_splits(images, lists=(), duplicates=(), shares=spec.split, seed=0)
    del images
    linted = LintedFolder(
        folder=Path(),
        spec=spec,
        pairs=pairs,
        splits=splits.splits,
        fingerprints=array("Q", range(PAIRS)),
        labels=label_map(["x"]),
        counts={},
        class_counts={},
        boxes=BoxSizes(),
        findings=Findings(),
        split_rule="seeded",
    )
    tasks = plan_job(linted, job="bench")
    cut_s = time.process_time() - start
    message_bytes = sum(len(line) for line in PlanLines(tasks))
    return {
        "cpu_s": time.process_time() - start,
        "of_it_before_messages_s": cut_s,
        "mb": peak_mb(),
        "message_mb": message_bytes / 1e6,
        "shards": len(tasks),
    }


def read_xml() -> dict[str, float]:
    """Microseconds a pair for reading XML and sampling the picture, by one process and by a pool."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_files(root, 2 * XML_FILES, "devkit")
        for index in range(XML_FILES):
            (root / f"Annotations/{index:06d}.xml").write_text(XML)
            (root / f"JPEGImages/{index:06d}.jpg").write_bytes(bytes(20_000 + index))
        pairing = scan_once(root)
        cores = len(os.sched_getaffinity(0))

        def read(processes: int) -> None:
            read_pairs(root, pairing.pairs, JobSpec(), lambda *_: None, processes=processes)

        def parse() -> None:
            for _ in range(XML_FILES):
                parse_xml(XML.encode(), file="")

        def each_us(times: int, work: Callable[[], object], clock: Callable[[], float]) -> float:
            return best_of(times, work, clock) / XML_FILES * 1e6

        return {
            "parse_us": each_us(3, parse, time.process_time),
            "one_process_us": each_us(3, partial(read, 1), time.process_time),
            "one_process_wall_us": each_us(1, partial(read, 1), time.perf_counter),
            "pool_wall_us": each_us(1, partial(read, cores), time.perf_counter),
            "pool_processes": cores,
        }


def peak_mb() -> float:
    """Most memory that this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


PARTS: dict[str, Callable[[], Any]] = {"scan": scan_and_pair, "plan": plan_a_million, "read": read_xml}


def run_apart(part: str) -> dict[str, Any]:
    """The figures of one part, from a process of its own."""
    done = subprocess.run([sys.executable, __file__, part], check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> int:
    """Run all parts and hold them against their floors."""
    ok = True

    def line(text: str, *, holds: bool | None = None) -> None:
        nonlocal ok
        ok = ok and holds is not False
        print(f"{'' if holds is None else 'ok  ' if holds else 'MISS'}\t{text}", flush=True)

    for layout, (rate, cpu_rate) in run_apart("scan").items():
        text = (
            f"scan + pair {FILES:,} files, {layout}: {rate:,.0f} files/s (floor 50,000), {cpu_rate:,.0f} a CPU second"
        )
        line(text, holds=rate >= 50_000)
    plan = run_apart("plan")
    line(f"plan + messages of {PAIRS:,} pairs: {plan['cpu_s']:.1f} s CPU (most 60)", holds=plan["cpu_s"] < 60)
    line(f"… of it before the messages {plan['of_it_before_messages_s']:.1f} s; {plan['shards']:.0f} shards,")
    line(f"… {plan['message_mb']:.0f} MB of messages; peak {plan['mb']:.0f} MB (most 600)", holds=plan["mb"] < 600)
    read = run_apart("read")
    share = f"{read['one_process_us'] / read['parse_us']:.1f}x lxml's parse alone"
    line(f"read XML of 13 objects and sample the picture: {read['one_process_us']:.0f} µs CPU a pair, {share}")
    gain = read["one_process_wall_us"] / read["pool_wall_us"]
    line(f"… by a pool of {read['pool_processes']:.0f}: {gain:.2f}x as fast with its start, at {XML_FILES:,} pairs")
    return 0 if ok else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(PARTS[sys.argv[1]]()))
    else:
        raise SystemExit(main())
