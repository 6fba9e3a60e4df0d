"""Exported models -> how long one picture takes, measured so that neither order nor a busy moment matters."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.inference.detector import Detector

# How many times a form runs in a row before it is the next form's turn.
_INVOKES: Final = 5

# Number of threads -> turns of each form; the figure that counts is that of one thread.
_TURNS: Final = {1: 10, 2: 4, 4: 4}
_USUAL_TURNS: Final = 4


def latency_ms(
    models: Mapping[str, bytes],
    picture: NDArray[np.uint8],
    advance: Callable[[], None] = lambda: None,
    threads: Iterable[int] = tuple(_TURNS),
) -> dict[str, dict[str, float]]:
    """Median milliseconds of one inference by form, then by number of threads (as text), measured by `median_ms`."""
    by_threads = {
        str(count): median_ms(
            {form: Detector(model, count, is_ours=True) for form, model in models.items()},
            picture,
            _TURNS.get(count, _USUAL_TURNS),
            advance,
        )
        for count in threads
    }
    return {form: {count: times[form] for count, times in by_threads.items()} for form in models}


def timing(by_threads: Mapping[str, float]) -> dict[str, Any]:
    """The times in a form's row: `latency_ms` by number of threads, and `median_ms`, the first of these."""
    return {"median_ms": next(iter(by_threads.values())), "latency_ms": dict(by_threads)}


def median_ms(
    detectors: Mapping[str, Detector],
    picture: NDArray[np.uint8],
    rounds: int,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Median milliseconds of one inference (without reading and resizing the picture).

    The forms take turns, in reverse order every second round: on a shared machine speed drifts within seconds, and this
    would distort the figures if one form were measured completely before the next.

    Args:
        detectors: By form.
        picture: uint8 [H, W, 3], RGB, of the models' size.
        rounds: How many turns each form gets.
        advance: Called after each round.

    Returns:
        Milliseconds by form.
    """
    times: dict[str, list[float]] = {form: [] for form in detectors}
    for detector in detectors.values():
        detector.network.feed(picture)
        detector.network.invoke()
    order = list(detectors)
    for _ in range(rounds):
        order.reverse()
        for form in order:
            times[form] += _invoke_ms(detectors[form])
        advance()
    return {form: round(statistics.median(measured), 3) for form, measured in times.items()}


def decode_ms(detector: Detector, picture: NDArray[np.uint8], rounds: int = 10) -> float:
    """Median milliseconds of decoding, in numpy, what a model without suppression returned for one picture."""
    raw, times = detector.network.run(picture), []
    for _ in range(rounds * _INVOKES):
        start = time.perf_counter()
        detector.decode(raw)
        times.append((time.perf_counter() - start) * 1000)
    return round(statistics.median(times), 3)


def _invoke_ms(detector: Detector) -> list[float]:
    measured = []
    for _ in range(_INVOKES):
        start = time.perf_counter()
        detector.network.invoke()
        measured.append((time.perf_counter() - start) * 1000)
    return measured
