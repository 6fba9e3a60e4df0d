"""What the reconciler remembers of one running job between rounds: plan, done, failed, and where to look next."""

from collections.abc import Iterator

from producer.feed import PlanReader
from shared.job import Job, ShardTask
from shared.ledger import UnderWay
from shared.storage import Storage


class TrackedJob:
    """One job under way. Memory: one byte and one offset a shard, nothing a picture."""

    def __init__(self, storage: Storage, job: Job) -> None:
        self.job = job
        self.failed: set[str] = set()
        self._shards = job.shards
        self._plan = PlanReader(storage, job)
        self._done = bytearray(len(self._shards))
        self._bits = b""

    def see_storage(self, done: frozenset[str], failed: set[str]) -> list[int]:
        """Take what a listing of storage says for the truth; the ordinals of all done shards."""
        self._done = bytearray(len(self._shards))
        ordinals = [self.job.ordinal(shard) for shard in done]
        for ordinal in ordinals:
            self._done[ordinal] = 1
        self.failed = failed
        return ordinals

    def see_ledger(self, bits: bytes) -> None:
        """Add what workers have noted as done since; `bits` is Redis's bitmap (bit 0 is the highest of byte 0)."""
        if bits == self._bits:
            return
        for ordinal in range(min(len(self._done), 8 * len(bits))):
            if bits[ordinal // 8] >> (7 - ordinal % 8) & 1:
                self._done[ordinal] = 1
        self._bits = bits

    def take_back(self, shard: str) -> None:
        """The receipt of `shard` did not hold: it is to be done again."""
        self._done[self.job.ordinal(shard)] = 0
        self._bits = b""

    def is_done(self, shard: str) -> bool:
        """Whether `shard` has a receipt, as far as known."""
        return bool(self._done[self.job.ordinal(shard)])

    def done(self) -> Iterator[str]:
        """The names of the shards done, in the order of the plan."""
        return (shard for shard, done in zip(self._shards, self._done, strict=True) if done)

    def pending(self, under_way: UnderWay) -> Iterator[str]:
        """Shards that are neither done, failed, queued nor leased, in the order of the plan; lazily."""
        busy = self.failed | under_way.queued.keys() | (under_way.leased.keys() - under_way.expired)
        for shard, done in zip(self._shards, self._done, strict=True):
            if not done and shard not in busy:
                yield shard

    def is_settled(self) -> bool:
        """Whether every shard is done or failed."""
        return sum(self._done) + len(self.failed) >= len(self._shards)

    def task(self, shard: str) -> ShardTask:
        """The task of `shard`, from the plan.

        Raises:
            PlanError: The plan's line is not the one that `job.json` lists.
        """
        return self._plan.task(self.job.ordinal(shard))
