"""A worker that stands still while it publishes, and whose shard another one writes meanwhile, harms nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from producer.finalize.dataset_files import check_annotations
from shared.errors import LeaseLost
from shared.jobs.identity import read_receipt
from shared.jobs.job import PathPair
from shared.jobs.receipts import ShardReceipt, check_shard
from shared.leasing.guard import Guard, Unguarded
from shared.storage import Storage
from tests.unit.worker.pictures import encode, make_job, soft_picture, voc_xml, write_pair
from worker.record.prepare import Outcome, prepare_example, recipe_of
from worker.shard import write_shard

BOX = (20, 10, 60, 60)


class StoodStill:
    """Is told for the last time that the shard is its own, and wakes up after `another` has written it."""

    def __init__(self, last: int, another: Callable[[], object]) -> None:
        self.last, self.another, self.asked = last, another, 0

    def advance(self, **progress: float | int | str) -> None:
        """Go on."""

    def require_wanted(self) -> None:
        """Write."""

    def before_publish(self) -> None:
        """Publish, until it has stood still."""
        self.asked += 1
        if self.asked == self.last:
            self.another()
        elif self.asked > self.last:
            raise LeaseLost("another worker has it")


@pytest.fixture
def pairs(tmp_path: Path) -> list[PathPair]:
    return [
        write_pair(tmp_path / "set", stem, encode(soft_picture(80, 90, seed=seed)), voc_xml(BOX, size=(80, 90)))
        for seed, stem in enumerate("abc")
    ]


# How often a worker asks: at the beginning, before the receipt, and before it replaces each file that is there already.
@pytest.mark.parametrize(("is_first", "last"), [(True, 1), (True, 2), *((False, last) for last in range(1, 6))])
def test_the_files_are_those_of_the_worker_that_has_the_shard(
    store_root: str, tmp_path: Path, pairs: list[PathPair], is_first: bool, last: int
) -> None:
    job, task = make_job(*pairs)
    recipe = recipe_of(job, tmp_path)

    def write(attempt: int, guard: Guard, left_out: str) -> ShardReceipt:
        def prepare(pair: PathPair) -> Outcome:
            # Each attempt sets another picture aside: then, and only then, their bytes differ.
            used = pair if left_out not in pair.image else pair.model_copy(update={"image": "JPEGImages/gone.jpg"})
            return prepare_example(used, recipe=recipe)

        return write_shard(
            task,
            job,
            storage=Storage(store_root),
            data_root=tmp_path,
            guard=guard,
            attempt=attempt,
            prepare=prepare,
        )

    if not is_first:
        write(1, Unguarded(), "a.jpg")
    written: list[ShardReceipt] = []
    with pytest.raises(LeaseLost):
        write(2, StoodStill(last, lambda: written.append(write(3, Unguarded(), "c.jpg"))), "b.jpg")
    storage = Storage(store_root)
    receipt = read_receipt(storage, job, task.shard)
    assert [receipt] == written
    assert written[0].attempt == 3
    check_shard(storage, written[0], with_digest=True)
    check_annotations(storage, written[0])
