"""A row in its own process: a line of `Work` on standard input, a line of `Took` on standard output, again and again.

`python -m tests.bench.loaders.row NAME`; crew.py starts it.
"""

import gc
import json
import os
import sys
from dataclasses import asdict

from tests.bench.loaders.work import Work


def main() -> None:
    """Answer until standard input ends."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Not above: the processes of a pool import this module again, and need no TensorFlow.
    from tests.bench.loaders.fitting import fit

    answers = os.fdopen(os.dup(1), "w")
    # What libraries print is no answer.
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        took = fit(sys.argv[1], Work.from_json(line))
        print(json.dumps(asdict(took)), file=answers, flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
