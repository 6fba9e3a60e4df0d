"""A row's name → what `fit` is given."""

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.bench.loaders import ours, scripts
from tests.bench.loaders.scripts import Fed
from tests.bench.loaders.tfdata import tfdata
from tests.bench.loaders.work import Work

BUILDERS: Final[dict[str, Callable[[Work], Fed]]] = {
    "memory": scripts.memory,
    "generator": scripts.generator,
    "pydataset": scripts.pydataset,
    "pydataset-processes": scripts.pydataset_processes,
    "imagedatagenerator": scripts.image_data_generator,
    "pool": scripts.pool,
    "pool-serial": scripts.pool_serial,
    "tfdata-naive": tfdata,
    "tfdata-interleave": partial(tfdata, interleave=True),
    "tfdata-map": partial(tfdata, mapped=True),
    "tfdata-prefetch": partial(tfdata, prefetch=True),
    "tfdata-all": partial(tfdata, interleave=True, mapped=True, prefetch=True),
    "tfdata-cache": partial(tfdata, interleave=True, mapped=True, prefetch=True, cache=True),
    "ours-cold": ours.cold,
    "ours-cached": ours.cached,
}
