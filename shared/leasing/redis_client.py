"""A Redis client that waits out short outages, and the handling of keys of a wrong type: they count as absent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

# Raised while Redis cannot be reached; callers that can go on without it catch only these.
UNREACHABLE: Final = (RedisConnectionError, RedisTimeoutError)

# What to do if Redis cannot be reached.
NO_REDIS: Final = "is Redis running, and are VOC_BROKER_URL and its password right?"

# The types of the keys that belong to no scope, and of those in which kombu keeps the queues.
_COMMON_TYPES: Final = {
    **dict.fromkeys(("voc:generation", "voc:leader", "voc:reconciled", "voc:refused", "voc:demand"), "string"),
    "voc:touched": "set",
    **dict.fromkeys(("shards", "train"), "list"),
    **dict.fromkeys(("shards.unacked", "train.unacked"), "hash"),
    **dict.fromkeys(("shards.unacked_index", "train.unacked_index"), "zset"),
    **dict.fromkeys(("shards.unacked_mutex", "train.unacked_mutex"), "string"),
    **dict.fromkeys(("_kombu.binding.shards", "_kombu.binding.train"), "set"),
}


def connect(url: str) -> "redis.Redis":
    """A client that retries with backoff: every command here is idempotent (scripts, SET, HSET, reads)."""
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        encoding_errors="backslashreplace",  # anybody may have written anything
        socket_connect_timeout=5,
        socket_timeout=10,
        **({} if url.startswith("unix://") else {"socket_keepalive": True}),
        health_check_interval=10,
        retry=Retry(ExponentialBackoff(cap=1.0, base=0.05), 3),
        retry_on_error=list(UNREACHABLE),
    )


def is_wrong_type(error: RedisError) -> bool:
    """Whether Redis refused because a key is of the wrong type."""
    return "WRONGTYPE" in str(error)


@contextmanager
def suppress_wrong_type() -> Iterator[None]:
    """Leave the block silently if a key is of the wrong type."""
    try:
        yield
    except ResponseError as error:
        if not is_wrong_type(error):
            raise


def empty_if_wrong_type(answer: Any) -> Any:
    """An answer of a pipeline; empty if the key is of the wrong type.

    Raises:
        RedisError: The answer is any other error.
    """
    if not isinstance(answer, RedisError):
        return answer
    if not is_wrong_type(answer):
        raise answer
    return {}


def remove_wrong_types(client: Any) -> list[str]:
    """Remove the queues and the keys of no scope that are of the wrong type; returns their names."""
    pipe = client.pipeline(transaction=False)
    for key in _COMMON_TYPES:
        pipe.type(key)
    found = dict(zip(_COMMON_TYPES, pipe.execute(), strict=True))
    wrong = [key for key, kind in _COMMON_TYPES.items() if found[key] not in (kind, "none")]
    if wrong:
        client.delete(*wrong)
    return wrong
