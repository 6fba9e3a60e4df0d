"""What the reconciler remembers of a running job between rounds: its plan, and which shards are done or failed."""

from collections.abc import Collection, Iterator
from itertools import compress

from producer.jobs.plan import PlanReader
from shared.jobs.job import Job, ShardTask
from shared.leasing.scopes import UnderWay
from shared.storage import Storage


class TrackedJob:
    """One job under way. Its memory does not grow with the pictures: one byte and one offset per shard."""

    def __init__(self, storage: Storage, job: Job) -> None:
        self.job = job
        self._given_up: set[str] = set()
        self._shards = job.shards
        self._plan = PlanReader(storage, job)
        self._done = bytearray(len(self._shards))
        self._bits = b""

    def see_storage(self, done: Collection[str], failed: Collection[str]) -> list[int]:
        """Replace what is known with what a listing of storage says; return the ordinals of all done shards."""
        self._done = bytearray(len(self._shards))
        ordinals = [self.job.ordinal(shard) for shard in done]
        for ordinal in ordinals:
            self._done[ordinal] = 1
        self._given_up = set(failed)
        return ordinals

    def see_ledger(self, bits: bytes) -> None:
        """Add what workers have since noted as done; `bits` is Redis's bitmap (bit 0 is the highest of byte 0)."""
        if bits == self._bits:
            return
        for ordinal in range(min(len(self._done), 8 * len(bits))):
            if bits[ordinal // 8] >> (7 - ordinal % 8) & 1:
                self._done[ordinal] = 1
        self._bits = bits

    def take_back(self, shard: str) -> None:
        """Note that the receipt of `shard` did not match its files, so that the shard is to be done again."""
        self._done[self.job.ordinal(shard)] = 0
        self._bits = b""

    def give_up(self, shard: str) -> None:
        """Note that `shard` was tried too often."""
        self._given_up.add(shard)

    @property
    def failed(self) -> set[str]:
        """The shards given up, without those that somebody has done nevertheless."""
        return {shard for shard in self._given_up if not self.is_done(shard)}

    def is_done(self, shard: str) -> bool:
        """Whether `shard` has a receipt, as far as is known."""
        return bool(self._done[self.job.ordinal(shard)])

    def has_ended(self, shard: str) -> bool:
        """Whether `shard` is done or given up."""
        return shard in self._given_up or self.is_done(shard)

    def done(self) -> Iterator[str]:
        """The names of the shards done, in the order of the plan."""
        return compress(self._shards, self._done)

    def pending(self, under_way: UnderWay) -> Iterator[str]:
        """Shards that are neither done, failed, queued nor leased, in the order of the plan; lazily."""
        busy = self._given_up | under_way.queued.keys() | (under_way.leased.keys() - under_way.expired)
        return (shard for shard, done in zip(self._shards, self._done, strict=True) if not done and shard not in busy)

    def left(self) -> int:
        """How many shards are neither done nor failed."""
        return len(self._shards) - sum(self._done) - len(self.failed)

    def is_settled(self) -> bool:
        """Whether every shard is done or failed."""
        return self.left() == 0

    def task(self, shard: str) -> ShardTask:
        """The task of `shard`, from the plan.

        Raises:
            PlanError: The plan's line is not the one that `job.json` lists.
        """
        return self._plan.task(self.job.ordinal(shard))
