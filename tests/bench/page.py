"""What the page costs: its start, its memory, the list of 1,000 jobs, a page of 50 of 100,000 findings.

The page is a process of its own (`voc2tflite page`) on a store of one finished job, copied under other names with
identities of their own; its findings are made up. Times are what a client waits, the longest of a dozen;
memory is the process's resident set. A figure above what is promised is a MISS.

Run: `python tests/bench/page.py [--jobs 1000] [--findings 100000] [--polls 2000 | --day]`. `--day` polls as often as a
browser does in 24 hours, the list and a job in turn, as fast as answers come; a smaller store makes it minutes.
"""

import argparse
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from producer.finalize.lint_csv import lint_rows
from shared.jobs.findings import Finding
from shared.jobs.paths import JobPaths
from tests.bench.old_jobs import Stage, copy_job
from tests.cluster import REPOSITORY
from tests.page import ServedPage
from tests.tiny import make_tiny_voc

MOST_START_S, MOST_MB = 1.0, 120.0
MOST_LIST_S, MOST_FINDINGS_S = 0.2, 0.3
# Of a browser that asks every 2 s.
POLLS_A_DAY: Final = 43_200
# How many times memory is told on the way.
PARTS: Final = 6
# How much more memory many polls may leave behind.
MOST_GROWTH: Final = 1.1
ROUNDS: Final = 12
# So that looks at the store, one a second at most, fall into the rounds.
PAUSE_S: Final = 0.3


def make_store(scratch: Path, jobs: int, findings: int) -> Path:
    """A store of `jobs` finished jobs; the first has so many findings."""
    stage = Stage(scratch / "stage", make_tiny_voc(scratch / "photos", 300))
    try:
        first = stage.submit("first")
        stage.finish(first)
        for number in range(1, jobs):
            copy_job(stage.storage, first, f"old-{number:04d}")
    finally:
        stage.broker.stop()
    rows = (
        Finding(
            file=f"Annotations/{number % 300:06d}.xml",
            object_index=1,
            rank="mended",
            kind=("box_clipped", "class_typo", "box_swapped")[number % 3],
            found=f"number {number}",
            done="kept",
            class_name=("circle", "cross", "triangle", "")[number % 4],
        )
        for number in range(findings)
    )
    stage.storage.write(JobPaths("first").lint, "".join(f"{line}\r\n" for line in lint_rows(rows)).encode())
    return Path(stage.storage.root)


def start(store: Path, photos: Path) -> tuple[subprocess.Popen[str], ServedPage, float]:
    """The page's process, and the seconds until it has answered its first request."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "producer", "page", "--store", str(store), "--bind", "127.0.0.1:0"],
        cwd=REPOSITORY,
        env={**os.environ, "VOC_BROKER_URL": "", "VOC_DATA_ROOT": str(photos)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found = re.search(r":([0-9]+)/ ", process.stdout.readline())
    assert found is not None
    page = ServedPage(int(found[1]))
    assert page.ask("/static/page.css").status == 200
    return process, page, time.perf_counter() - begun


def slowest_s(page: ServedPage, path: str, rounds: int = ROUNDS) -> float:
    """Seconds that a client waits for a page, the longest of some: now and then one has to look at the store."""
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = page.ask(path)
        seconds.append(time.perf_counter() - begun)
        assert answer.status == 200, path
        assert "/findings?" not in path or answer.text.count("<image ") == 50, path
        time.sleep(PAUSE_S)
    return max(seconds)


def memory(process: subprocess.Popen[str]) -> float:
    """The resident set of a process in MB."""
    return psutil.Process(process.pid).memory_info().rss / 1e6


def poll(page: ServedPage, process: subprocess.Popen[str], polls: int) -> float:
    """Ask for the list and a job in turn, as fast as answers come; the most memory seen, in MB."""
    begun, most = time.perf_counter(), 0.0
    for number in range(1, polls + 1):
        assert page.ask("/jobs/first" if number % 2 else "/").status == 200
        if number % max(1, polls // PARTS) == 0:
            most = max(most, found := memory(process))
            print(f"    \t{number:,} polls in {time.perf_counter() - begun:.0f} s: {found:.1f} MB", flush=True)
    return most


def tell(what: str, found: float, most: float, unit: str) -> None:
    """Print a figure beside what is promised."""
    print(f"{'ok  ' if found <= most else 'MISS'}\t{what}: {found:.2f} {unit} (at most {most:g})", flush=True)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--findings", type=int, default=100_000)
    polls = parser.add_mutually_exclusive_group()
    polls.add_argument("--polls", type=int, default=2000)
    polls.add_argument("--day", dest="polls", action="store_const", const=POLLS_A_DAY)
    asked = parser.parse_args()
    logging.disable(logging.INFO)
    scratch = Path(tempfile.mkdtemp(prefix="vb-"))
    try:
        (scratch / "empty").mkdir()
        process, page, seconds = start(scratch / "empty", scratch)
        tell("start, to the first answer", seconds, MOST_START_S, "s")
        process.terminate()
        process.wait(20)
        store = make_store(scratch, asked.jobs, asked.findings)
        process, page, _ = start(store, scratch)
        try:
            first_s = slowest_s(page, "/", rounds=1)
            print(f"    \tthe first list of {asked.jobs:,} jobs, which reads them all: {first_s:.2f} s")
            tell(f"the list of {asked.jobs:,} jobs", slowest_s(page, "/"), MOST_LIST_S, "s")
            path = "/jobs/first/findings"
            tell(f"50 of {asked.findings:,} findings, drawn", slowest_s(page, f"{path}?page=77"), MOST_FINDINGS_S, "s")
            tell("50 of one kind", slowest_s(page, f"{path}?kind=class_typo&page=9"), MOST_FINDINGS_S, "s")
            tell("50 of one class", slowest_s(page, f"{path}?class=cross&page=9"), MOST_FINDINGS_S, "s")
            both = f"{path}?kind=class_typo&class=cross&page=9"
            tell("50 of one kind and class", slowest_s(page, both), MOST_FINDINGS_S, "s")
            before = memory(process)
            tell("memory", before, MOST_MB, "MB")
            most = poll(page, process, asked.polls)
            tell(f"memory at most in {asked.polls:,} polls, as a ratio", most / before, MOST_GROWTH, "")
            tell("the same", most, MOST_MB, "MB")
        finally:
            process.terminate()
            process.wait(20)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
