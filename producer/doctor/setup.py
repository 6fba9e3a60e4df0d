"""Checks of the set-up: broker, store, data root, workers; each with what was found and what to do."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from redis.exceptions import NoPermissionError, RedisError

from producer.doctor.race import RACERS, races_without_one_winner
from producer.local.redis_server import LEAST_REDIS, embedded_server
from producer.settings import ProducerSettings
from shared.command import hint, start_hint
from shared.errors import BrokerError, StorageError
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import NO_REDIS, connect
from shared.leasing.scopes import RUN_QUEUE, SHARD_QUEUE
from shared.storage import BucketFolder, Storage, data_folder
from shared.storage.bucket import advice as bucket_advice

LEAST_FREE_GB: Final = 1.0
# The service does a round every 2 s.
ROUND_AGE_S: Final = 30.0
_SETTLES: Final = (
    "it runs and waits until old leases have run out (VOC_LEASE_S), because Redis is new or was emptied; its log "
    "says more"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was checked: whether it is well, what was found, and what to do if it is not."""

    name: str
    is_well: bool
    found: str
    advice: str = ""


def check_setup(settings: ProducerSettings) -> list[CheckResult]:
    """All checks, in the order in which to repair what they find; advice is kept only where something is wrong."""
    checks = [*_versions(), *_broker(settings), *_store(settings), *_data_root(settings)]
    return [replace(check, advice="") if check.is_well else check for check in checks]


def _versions() -> Iterator[CheckResult]:
    found = ", ".join(f"{name} {version(name)}" for name in ("celery", "redis", "lxml", "pydantic"))
    found = f"Python {sys.version.split()[0]}, {found}"
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield CheckResult(name="versions", is_well=supported, found=found, advice="use Python 3.11 to 3.13")


def _broker(settings: ProducerSettings) -> Iterator[CheckResult]:
    if settings.broker_url is None:
        yield _embedded()
        return
    ledger = Ledger(connect(settings.broker()))
    try:
        facts = ledger.client.info()
    except RedisError as error:
        yield CheckResult(name="broker", is_well=False, found=str(error), advice=NO_REDIS)
        return
    yield from _redis(facts)
    yield _user(ledger, settings.broker())
    try:
        yield from _services(ledger)
    except NoPermissionError as error:
        yield CheckResult(name="workers", is_well=False, found=str(error), advice=_acl_advice())


def _embedded() -> CheckResult:
    """The server that `submit` would start if no broker is configured."""
    try:
        found = f"none configured: submit runs an embedded one, {embedded_server()}"
    except BrokerError as error:
        advice = "or start a Redis and set VOC_BROKER_URL"
        return CheckResult(name="broker", is_well=False, found=str(error), advice=advice)
    return CheckResult(name="broker", is_well=True, found=found)


def _redis(facts: dict[str, Any]) -> Iterator[CheckResult]:
    number = str(facts["redis_version"])
    release = tuple(int(part) for part in number.split(".")[:2])
    advice = f"install Redis {LEAST_REDIS[0]}.{LEAST_REDIS[1]} or newer; separate users (`acl`) need 7.0"
    yield CheckResult(name="broker version", is_well=release >= LEAST_REDIS, found=number, advice=advice)
    is_kept = bool(facts["aof_enabled"])
    advice = "start Redis with --appendonly yes: a restart then costs seconds (nothing is lost either way)"
    yield CheckResult(name="append-only file", is_well=is_kept, found="on" if is_kept else "off", advice=advice)
    policy = str(facts["maxmemory_policy"])
    advice = "start Redis with --maxmemory-policy noeviction: it must not drop leases when it is full"
    yield CheckResult(name="eviction policy", is_well=policy == "noeviction", found=policy, advice=advice)


def _user(ledger: Ledger, url: str) -> CheckResult:
    """As which user we are logged in to Redis, and whether it has too many rights or too few."""
    user = str(ledger.client.execute_command("ACL", "WHOAMI"))
    try:
        ledger.client.config_get("maxmemory")
    except NoPermissionError:
        return _restricted(ledger, user)
    if not url.startswith("unix://") and _is_open(url):
        advice = f"set a password, or better one for each service: {_acl_advice()}"
        return CheckResult(name="access", is_well=False, found="no password: anybody may do anything", advice=advice)
    found = f"user {user}, who may do anything; `{hint('acl', 'secrets')}` makes a user for each service"
    return CheckResult(name="access", is_well=True, found=found)


def _restricted(ledger: Ledger, user: str) -> CheckResult:
    """Whether a user with limited rights has those that the producer needs."""
    try:
        ledger.write_state("doctor", looked=1)
        ledger.forget_scope("doctor")
        ledger.queue_length(SHARD_QUEUE)
    except NoPermissionError as error:
        return CheckResult(name="access", is_well=False, found=f"user {user}: {error}", advice=_acl_advice())
    return CheckResult(name="access", is_well=True, found=f"user {user}, with the producer's rights only")


def _acl_advice() -> str:
    return f"load the file that `{hint('acl', 'secrets')}` writes, and use its user `producer`"


def _is_open(url: str) -> bool:
    """Whether Redis takes commands without a password."""
    parts = urlsplit(url)
    stranger = connect(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    try:
        return bool(stranger.ping())
    except RedisError:
        return False


def _services(ledger: Ledger) -> Iterator[CheckResult]:
    beats = ledger.workers().values()
    for kind, queue in (("worker", SHARD_QUEUE), ("trainer", RUN_QUEUE)):
        slots = [beat.slots for beat in beats if beat.kind == kind]
        found, advice = f"{len(slots)} with {sum(slots)} processes", f"start one: {start_hint(kind, queue)}"
        yield CheckResult(name=f"{kind}s", is_well=bool(slots), found=found, advice=advice)
    age_s = ledger.round_age_s()
    is_led = ledger.is_led()
    is_live = is_led and age_s is not None and age_s < ROUND_AGE_S
    found = "no round of the reconciler yet" if age_s is None else f"last round {age_s:.0f} s ago"
    advice = f"start it: {start_hint('producer')} (submit --wait does its work too)"
    if age_s is None and is_led:  # it waits for old leases to run out: `Leadership.is_settling`
        is_live, found = True, _SETTLES
    elif not is_led:
        found += ", and none is running now"
    else:
        found += f", by {ledger.leader()}"
    if is_led and not is_live:
        advice = "look at its log, which says why it cannot work"
    yield CheckResult(name="service", is_well=is_live, found=found, advice=advice)


def _store(settings: ProducerSettings) -> Iterator[CheckResult]:
    try:
        storage = Storage(settings.store)
    except StorageError as error:
        advice = "name a folder by --store or VOC_STORE, or move the file away"
        yield CheckResult(name="store", is_well=False, found=str(error), advice=advice)
        return
    round_trip = _round_trip(storage, f"doctor-{os.getpid()}.txt")
    yield round_trip
    if round_trip.is_well:
        yield _commits(storage)
    if storage.is_local and storage.local_path("").is_dir():
        free_gb = shutil.disk_usage(storage.root).free / 1e9
        advice = "free some space: a full disk fails shards (retry does them again)"
        yield CheckResult(name="free space", is_well=free_gb >= LEAST_FREE_GB, found=f"{free_gb:.1f} GB", advice=advice)


def _round_trip(storage: Storage, key: str) -> CheckResult:
    """Whether a file can be written, read and removed."""
    try:
        storage.make_root()
        storage.write(key, b"first")
        if storage.read(key) != b"first":
            raise StorageError(f"{storage.url(key)}: reading it gives other bytes than were written")
        storage.remove(key)
    except StorageError as error:
        advice = "give this user the right to write there"
        if not storage.is_local:
            advice = bucket_advice(storage.root, str(error), "list the bucket, and to read, write and remove in it")
        elif (above := _file_in_the_way(Path(storage.root))) is not None:
            advice = f"name a folder by --store or VOC_STORE, or move the file {above} away"
        return CheckResult(name="store", is_well=False, found=str(error), advice=advice)
    return CheckResult(name="store", is_well=True, found=f"write, read and remove in {storage.root}")


def _commits(storage: Storage) -> CheckResult:
    """Whether exactly one of several clients that create a file is told so; jobs, runs and locks rely on it."""
    advice = "do not keep anything there: use a folder, S3 itself, or SeaweedFS from 4.48 on, which can commit"
    try:
        winners = races_without_one_winner(storage)
    except StorageError as error:
        return CheckResult(name="commit", is_well=False, found=str(error), advice="look at the store's own log")
    if winners:
        told = f"{RACERS} clients created one file at once, and {max(winners)} were told that they did"
        found = f"{storage.root} cannot commit: {told}"
        return CheckResult(name="commit", is_well=False, found=found, advice=advice)
    return CheckResult(
        name="commit", is_well=True, found=f"of {RACERS} clients that create one file at once, one succeeds"
    )


def _file_in_the_way(folder: Path) -> Path | None:
    """The file at the place of `folder` or of a folder above it, if there is one."""
    return next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), None)


def _data_root(settings: ProducerSettings) -> Iterator[CheckResult]:
    if settings.broker_url is None:
        return
    root, advice = data_folder(settings.data_root), "mount the photos there, or set VOC_DATA_ROOT"
    try:
        is_there = root.is_dir() and (isinstance(root, BucketFolder) or os.access(root, os.R_OK | os.X_OK))
        found = f"{root} {'can be read' if is_there else 'is absent or cannot be read'}"
    except StorageError as error:
        is_there, found = False, str(error)
    yield CheckResult(name="data root", is_well=is_there, found=found, advice=advice)
