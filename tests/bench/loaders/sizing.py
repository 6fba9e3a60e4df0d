"""Measured rates → workers and loader cores that an accelerator's step time asks for."""

import math
from dataclasses import dataclass
from typing import Final

from tests.bench.loaders.work import BATCH

# Cores times rate, over demand, at which the accelerator is to be busy (issue 8).
AIR: Final = 1.3
STEPS_MS: Final = (10, 20, 40, 80, 160, 320)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Images a second of one core: a worker's, our input's from the cache and from the shards."""

    worker: float
    cached: float
    cold: float


def sizing(rates: Rates) -> str:
    """Cores for a batch of 32 a step, in Markdown.

    Worker cores are those that keep pace with the first epoch; fewer only make the shards later.
    """
    lines = [
        f"| step of {BATCH} pictures | takes images/s | loader cores, decoded cache | loader cores, streamed "
        "| worker cores that write shards as fast |",
        "|---|---|---|---|---|",
    ]
    for step_ms in STEPS_MS:
        taken = BATCH / step_ms * 1e3
        cores = [math.ceil(AIR * taken / rate) for rate in (rates.cached, rates.cold)]
        lines.append(f"| {step_ms} ms | {taken:.0f} | {cores[0]} | {cores[1]} | {math.ceil(taken / rates.worker)} |")
    return "\n".join(lines)
