"""One row, prepared and trained once, with its clock readings."""

import time
from contextlib import ExitStack
from typing import Any

import keras

from tests.bench.loaders.accelerator import Accelerator, Marks, computing, waiting
from tests.bench.loaders.rows import BUILDERS
from tests.bench.loaders.scripts import Fed
from tests.bench.loaders.work import Took, Work


def fit(name: str, work: Work) -> Took:
    """Prepare and train once."""
    keras.utils.set_random_seed(0)
    step = computing(work.side) if work.on_cpu else waiting(work.step_s)
    began_s = time.perf_counter()
    fed = BUILDERS[name](work)
    prepared_s = time.perf_counter()
    model = Accelerator(step)
    marks = Marks()
    with ExitStack() as stack:
        stack.enter_context(fed.close)
        x = fed.x if fed.late is None else fed.late()
        model.fit(x, fed.y, **_arguments(fed, work), epochs=work.epochs, callbacks=[marks], verbose=0)
        ended_s = time.perf_counter()
    return Took(
        prepare_s=prepared_s - began_s,
        fit_s=ended_s - prepared_s,
        epochs_s=[late - early for early, late in zip(marks.wall_s, marks.wall_s[1:], strict=False)],
        cpu_s=[late - early for early, late in zip(marks.cpu_s, marks.cpu_s[1:], strict=False)],
        pictures=model.pictures,
        steps=model.noted,
        made=[(a - model.started_s, b - model.started_s) for a, b in fed.made],
    )


def _arguments(fed: Fed, work: Work) -> dict[str, Any]:
    # Only arrays are for Keras to shuffle.
    arguments: dict[str, Any] = {"shuffle": fed.batch is not None}
    if fed.steps is not None:
        arguments["steps_per_epoch"] = fed.steps
    if fed.batch is not None:
        arguments["batch_size"] = fed.batch
    return arguments
