"""A model's first run, in a child process: a file on which LiteRT crashes, hangs or fills memory is just refused.

LiteRT checks that a flatbuffer stays within its bytes, not what its numbers mean: 14 of 13,500 damaged files ended the
process (for example, an absent scale is read all the same). No list of checks covers all cases, so the model is run
once where it can do no harm (docs/decisions/0050).

Protocol on the child's pipes: in, the file's bytes; out, why it is refused, with exit code 3.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np

from shared.errors import ExportError
from shared.model.file import ModelFile
from trainer.inference.lite_model import LiteModel, memory_budget

# Seconds for one picture. `small` takes 0.2 s with the start of the process; `medium` at 1280 px about 5 on a Pi.
MOST_S: Final = 60.0

# The child's exit code if it refuses the file and says why.
REFUSED: Final = 3
_EXPECTED: Final = "a model that runs"
_ROOT: Final = Path(__file__).resolve().parents[2]


def try_model(file: ModelFile, image_size: int, most_s: float = MOST_S) -> None:
    """Run a model once on noise in a child process.

    Args:
        file: The model.
        image_size: The side of its pictures in pixels, from its description.
        most_s: How many seconds the child may take.

    Raises:
        ExportError: The child refuses it, dies of it, or takes too long.
    """
    # -P and PYTHONPATH make sure that this very program runs, whatever lies in the current folder.
    command = [sys.executable, "-P", "-m", "trainer.inference.trial_load", str(image_size), file.name]
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(  # noqa: S603 - our own
            command,
            input=file.content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
            timeout=most_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise file.refusal(f"LiteRT ran it on one picture for more than {most_s:g} s", _EXPECTED) from error
    except OSError as error:
        raise file.refusal(f"it cannot be tried in a process of its own ({error.strerror})", _EXPECTED) from error
    if done.returncode == REFUSED:
        raise ExportError(done.stdout.decode())
    if done.returncode != 0:
        code = done.returncode
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        raise file.refusal(f"LiteRT ended its process {how} when it ran it on one picture", _EXPECTED)


def limit_process(budget: int, most_s: float) -> None:
    """Limit this process to `budget` more bytes of memory, and its processor time in case its parent is gone.

    Only as far as the system supports it. The process also writes no core dump.
    """
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(most_s), int(most_s)))
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    # On top of what Python, numpy and LiteRT have reserved so far, which grows with the number of cores.
    bound = int(statm.read_text(encoding="ascii").split()[0]) * resource.getpagesize() + budget
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))


def _main(image_size: int, name: str) -> int:
    """The child's side."""
    file = ModelFile(name=name, content=sys.stdin.buffer.read())
    limit_process(memory_budget(file.content, image_size), MOST_S)
    try:
        model = LiteModel(file, image_size=image_size, threads=1)
        model.run(np.random.default_rng(0).integers(0, 256, (image_size, image_size, 3), np.uint8))
    except ExportError as error:
        sys.stdout.buffer.write(str(error).encode())
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), sys.argv[2]))
