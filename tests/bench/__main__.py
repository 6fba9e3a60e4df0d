"""`make bench`: the benches of 20 minutes or less, one after the other, and at the end what became of each.

One that fails, or prints a MISS of what is promised, does not stop those after it; the command ends with 1 then. The
others take longer or want something to work on, and are run by hand: `--list` names them, their first lines say how.
Run: `make bench`, or `python -m tests.bench picture_stage train_step` for some.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent

SHORT: Final = (
    ("picture_stage",),
    ("read_input",),
    ("scan_plan",),
    ("live_worker",),
    ("celery_pool",),
    ("load",),
    ("old_jobs",),
    ("page",),
    ("bucket_reads",),
    ("bucket_training", "--rounds", "2"),
    ("second_worker",),
    ("int8_ends",),
    ("train_step",),
    ("train_step", "--backbone", "efficientnet_lite0"),
    ("head_start",),
)
BY_HAND: Final = (
    "ablation",
    "audit_trainers",
    "audit_worth",
    "bucket_requests",
    "bucket_worker",
    "doubt_sheets",
    "few_photos",
    "go_on",
    "model_times",
    "peer_heads",
    "planted_labels",
    "runtimes",
    "seeds",
    "worker_drift",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benches", nargs="*", help="Only these.")
    parser.add_argument("--list", action="store_true", help="Name all of them, and run none.")
    asked = parser.parse_args()
    wanted = [words for words in SHORT if not asked.benches or words[0] in asked.benches]
    unknown = set(asked.benches) - {words[0] for words in SHORT}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(sorted({w[0] for w in SHORT}))}")
    if asked.list:
        print("make bench:", *(" ".join(words) for words in wanted), sep="\n  ")
        print("by hand:", *BY_HAND, sep="\n  ")
        return 0
    results = [_run(words, f"{number}/{len(wanted)}") for number, words in enumerate(wanted, start=1)]
    print("\n" + "\n".join(f"{shown:50} {seconds:5.0f} s  {ended}" for shown, seconds, ended in results))
    return int(any(ended not in ("ok", "skipped") for _, _, ended in results))


def _run(words: tuple[str, ...], place: str) -> tuple[str, float, str]:
    """Run one; its name, the seconds that it took and how it ended."""
    shown = " ".join(words)
    print(f"\n== {place} {shown}", flush=True)
    began_s = time.monotonic()
    command = [sys.executable, "-u", str(FOLDER / f"{words[0]}.py"), *words[1:]]
    ended = "ok"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if "MISS" in line:
                ended = "missed"
            elif line.startswith("skipped") or ": skipped" in line:
                ended = "skipped"
    code = process.returncode
    return shown, time.monotonic() - began_s, ended if code == 0 or ended == "missed" else f"ended with {code}"


if __name__ == "__main__":
    raise SystemExit(main())
