"""Checks of the set-up: broker, store, data root, workers; each with what was found and what to do."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from redis.exceptions import NoPermissionError, RedisError

from producer.settings import ProducerSettings
from shared.broker import SHARD_QUEUE
from shared.errors import StorageError
from shared.ledger import Ledger, connect
from shared.storage import Storage

# BRPOP hand-over, ACL and the scripts' effects replication are as measured from here on.
LEAST_REDIS: Final = (6, 2)
LEAST_FREE_GB: Final = 1.0
# A service that feeds the queue does a round every 2 s.
ROUND_AGE_S: Final = 30.0
ACL_ADVICE: Final = "load the file that `producer acl FOLDER` writes, and use its user `producer`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at: whether it is well, what was found, and what to do if it is not."""

    name: str
    is_well: bool
    found: str
    advice: str = ""


def examine(settings: ProducerSettings) -> list[Check]:
    """All checks, in the order in which to mend what they find."""
    return [*_versions(), *_broker(settings), *_store(settings), *_data_root(settings)]


def _versions() -> Iterator[Check]:
    names = ("celery", "redis", "lxml", "pydantic")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Check(
        name="versions",
        is_well=supported,
        found=f"Python {sys.version.split()[0]}, {found}",
        advice="use Python 3.11 to 3.13",
    )


def _broker(settings: ProducerSettings) -> Iterator[Check]:
    if settings.broker_url is None:
        yield Check(name="broker", is_well=True, found="none configured: submit runs an embedded one")
        return
    ledger = Ledger(connect(settings.broker()))
    try:
        facts = ledger.client.info()
    except RedisError as error:
        advice = "is Redis running, and are VOC_BROKER_URL and its password right?"
        yield Check(name="broker", is_well=False, found=str(error), advice=advice)
        return
    yield from _redis(facts)
    yield _user(ledger, settings.broker())
    try:
        yield from _crew(ledger)
    except NoPermissionError as error:
        yield Check(name="workers", is_well=False, found=str(error), advice=ACL_ADVICE)


def _redis(facts: dict[str, Any]) -> Iterator[Check]:
    number = str(facts["redis_version"])
    release = tuple(int(part) for part in number.split(".")[:2])
    yield Check(
        name="broker version",
        is_well=release >= LEAST_REDIS,
        found=number,
        advice=f"Redis {LEAST_REDIS[0]}.{LEAST_REDIS[1]} or newer",
    )
    is_kept = bool(facts["aof_enabled"])
    advice = "start Redis with --appendonly yes: a restart then costs seconds (nothing is lost either way)"
    yield Check(name="append-only file", is_well=is_kept, found="on" if is_kept else "off", advice=advice)
    policy = str(facts["maxmemory_policy"])
    advice = "start Redis with --maxmemory-policy noeviction: it must not drop leases when it is full"
    yield Check(name="eviction policy", is_well=policy == "noeviction", found=policy, advice=advice)


def _user(ledger: Ledger, url: str) -> Check:
    """Who we are to Redis: a user with a service's rights only, one with all of them, or anybody."""
    user = str(ledger.client.execute_command("ACL", "WHOAMI"))
    try:
        ledger.client.config_get("maxmemory")
    except NoPermissionError:
        return _restricted(ledger, user)
    if not url.startswith("unix://") and _is_open(url):
        advice = f"set a password, better one for each service: {ACL_ADVICE}"
        return Check(name="access", is_well=False, found="anybody may do everything: no password", advice=advice)
    found = f"user {user}, who may do everything; `producer acl` makes one for each service"
    return Check(name="access", is_well=True, found=found)


def _restricted(ledger: Ledger, user: str) -> Check:
    """Whether a user with few rights has those of the producer."""
    try:
        ledger.write_state("doctor", looked=1)
        ledger.forget_scope("doctor")
        ledger.queue_length(SHARD_QUEUE)
    except NoPermissionError as error:
        return Check(name="access", is_well=False, found=f"user {user}: {error}", advice=ACL_ADVICE)
    return Check(name="access", is_well=True, found=f"user {user}, with the producer's rights only")


def _is_open(url: str) -> bool:
    """Whether Redis obeys somebody without a password."""
    parts = urlsplit(url)
    stranger = connect(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    try:
        return bool(stranger.ping())
    except RedisError:
        return False


def _crew(ledger: Ledger) -> Iterator[Check]:
    beats = ledger.workers().values()
    for kind, advice in (
        ("worker", "celery -A worker.app worker"),
        ("trainer", "celery -A trainer.app worker -Q train"),
    ):
        slots = [int(beat["slots"]) for beat in beats if beat["kind"] == kind]
        found = f"{len(slots)} with {sum(slots)} processes"
        yield Check(name=f"{kind}s", is_well=bool(slots), found=found, advice=f"start one: {advice}")
    age_s = ledger.round_age_s()
    yield Check(
        name="service",
        is_well=age_s is not None and age_s < ROUND_AGE_S,
        found="no round of the reconciler yet" if age_s is None else f"last round {age_s:.0f} s ago",
        advice="start it: producer serve (submit --wait does its part too)",
    )


def _store(settings: ProducerSettings) -> Iterator[Check]:
    storage = Storage(settings.store)
    key = f"doctor-{os.getpid()}.txt"
    yield _attempt("store", f"write, read and remove in {storage.root}", lambda: _round_trip(storage, key))
    if storage.is_local and storage.local_path("").is_dir():
        free_gb = shutil.disk_usage(storage.root).free / 1e9
        advice = "free some space: a full disk fails shards (producer retry does them again)"
        yield Check(name="free space", is_well=free_gb >= LEAST_FREE_GB, found=f"{free_gb:.1f} GB", advice=advice)


def _round_trip(storage: Storage, key: str) -> None:
    storage.make_root()
    storage.write(key, b"well")
    if storage.read(key) != b"well" or storage.create(key, b"ill"):
        raise StorageError(f"{storage.url(key)}: reads back other bytes, or was created twice")
    storage.remove(key)


def _attempt(name: str, found: str, deed: Callable[[], None]) -> Check:
    try:
        deed()
    except StorageError as error:
        return Check(name=name, is_well=False, found=str(error), advice="give this user the right to write there")
    return Check(name=name, is_well=True, found=found)


def _data_root(settings: ProducerSettings) -> Iterator[Check]:
    root = settings.data_root
    if settings.broker_url is None:
        return
    is_there = root.is_dir() and os.access(root, os.R_OK | os.X_OK)
    found = f"{root} {'can be read' if is_there else 'is absent or cannot be read'}"
    yield Check(name="data root", is_well=is_there, found=found, advice="mount the photos there, or set VOC_DATA_ROOT")
