"""Who may queue shards: one leader at a time; after a loss of Redis, nobody until the leases are known again."""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from redis.exceptions import RedisError

from producer.reconcile.context import Context
from producer.reconcile.unfinished_jobs import has_unfinished_jobs
from shared.leasing.lease import RENEW_MOST_S

logger = logging.getLogger(__name__)

# This long after a leader died, another reconciler can take over.
LEADER_EXPIRY_S: Final = 10
# A round that finishes a data set of 1,300 shards in a bucket takes 14 s. One that takes longer than this hangs.
LONGEST_ROUND_S: Final = 600

_WAITS: Final = (
    "waits, and takes over when that one ends; it is another `serve`, or a command that waits for its job; where it "
    "serves another store, give each store a Redis of its own (VOC_BROKER_URL)"
)


class Leadership:
    """This reconciler's claim to lead, and which Redis it led on last."""

    def __init__(self, context: Context, *, is_new_redis: bool) -> None:
        """`is_new_redis`: Redis was started just now, so it cannot have forgotten a lease."""
        self._context = context
        self._token = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"
        self._run_id: str | None = None
        self._settled_at = float("-inf")
        self._leads: bool | None = None
        if is_new_redis:
            self._run_id = context.ledger.identity()[0]
            context.ledger.set_generation(self._token)

    def acquire(self) -> bool:
        """Become or stay the leader; False while another one leads."""
        leads = self._context.ledger.lead(self._token, LEADER_EXPIRY_S)
        if leads != self._leads and (self._leads is not None or not leads):
            other = {"leader": self._context.ledger.leader(), "hint": _WAITS}
            logger.info("leads_now" if leads else "another_serve_leads", extra={} if leads else other)
        self._leads = leads
        return leads

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep leading while a round lasts, which may be longer than the expiry, at most for `LONGEST_ROUND_S`."""
        ended = threading.Event()
        thread = threading.Thread(target=self._keep, args=(ended,), name="leadership", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _keep(self, ended: threading.Event) -> None:
        period_s = LEADER_EXPIRY_S / 3
        for _ in range(int(LONGEST_ROUND_S / period_s)):
            if ended.wait(period_s):
                return
            with suppress(RedisError):  # the round itself gets the error too
                self._context.ledger.lead(self._token, LEADER_EXPIRY_S)

    def release(self) -> None:
        """Let another reconciler lead at once; if Redis cannot be told, the leadership expires."""
        with suppress(RedisError):
            self._context.ledger.stop_leading(self._token)

    def notice_lost_redis(self) -> bool:
        """Whether Redis was restarted or emptied since the last call; then `is_settling` for a while."""
        ledger, settings = self._context.ledger, self._context.settings
        run_id, generation = ledger.identity()
        is_wiped = generation is None
        is_first_start = is_wiped and self._run_id is None and not has_unfinished_jobs(self._context)
        is_lost = not is_first_start and (is_wiped or self._run_id not in (None, run_id))
        if is_lost:
            if is_wiped and self._run_id is None:  # at the start it is not known whether anything was lost
                logger.info("redis_is_empty", extra={"hint": "unfinished jobs are queued when old leases have run out"})
            else:
                logger.warning("redis_lost", extra={"wiped": is_wiped})
            # Holders renew every third of a lease or every 5 s, whichever is sooner; after that, all live holders are
            # known again. After a wipe they may have to reconnect first, so they get the whole lease, and at least 6 s.
            wait_s = max(settings.lease_s, RENEW_MOST_S + 1) if is_wiped else settings.lease_s / 3 + 1
            self._settled_at = self._context.clock() + wait_s
        if is_lost or is_wiped:
            ledger.set_generation(self._token)
        self._run_id = run_id
        return is_lost

    def is_settling(self) -> bool:
        """Whether Redis was lost so recently that holders may not have renewed their leases: nothing may be queued."""
        return self._context.clock() < self._settled_at
