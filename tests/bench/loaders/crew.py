"""The rows' processes: started together, asked in turns, each as long as the others wait; their memory watched."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from tests.bench.loaders.work import Took, Work

REPOSITORY: Final = Path(__file__).resolve().parents[3]

# Between two looks at the memory of a row; a look costs some milliseconds.
LOOK_S: Final = 0.25


class Row:
    """A row's process."""

    def __init__(self, name: str, logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        command = [sys.executable, "-m", "tests.bench.loaders.row", name]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=REPOSITORY, text=True
            )

    def wait_ready(self) -> None:
        """Until it has imported what it needs."""
        self._answer()

    def fit(self, work: Work, *, watch: bool) -> Took:
        """Let it prepare and train once.

        Args:
            work: What on.
            watch: Look at its memory meanwhile.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(work.to_json() + "\n")
        self.process.stdin.flush()
        with _watched(self.process.pid if watch else None) as peak:
            fields = json.loads(self._answer())
        return Took(**{**fields, "peak_mb": peak[0] / 1e6})

    def end(self) -> None:
        """Close its input: it ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            tail = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"row {self.name} ended with {self.process.wait()}:\n{tail}")
        return line


@contextmanager
def _watched(pid: int | None) -> Iterator[list[int]]:
    """Notes the most anonymous memory, in bytes, that the tree of `pid` held at once."""
    peak, over = [0], threading.Event()

    def look() -> None:
        while pid is not None and not over.wait(LOOK_S):
            peak[0] = max(peak[0], anonymous_bytes(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def anonymous_bytes(pid: int) -> int:
    """Memory of a process tree that no file backs; pages shared after a fork count once (smaps_rollup, Pss_Anon)."""
    total = 0
    try:
        tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in tree:
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:
            continue
        found = {key: value for key, _, value in (line.partition(":") for line in text.splitlines()[1:])}
        total += sum(int(found.get(key, "0 kB").split()[0]) * 1024 for key in ("Pss_Anon", "Pss_Shmem"))
    return total


@contextmanager
def crew(names: Sequence[str], logs: Path) -> Iterator[dict[str, Row]]:
    """All rows' processes, ready; they end with the block."""
    logs.mkdir(parents=True, exist_ok=True)
    rows = {name: Row(name, logs) for name in names}
    try:
        for row in rows.values():
            row.wait_ready()
        yield rows
    finally:
        for row in rows.values():
            row.end()
