"""Messages that anybody may put on the queue."""

from typing import Any


def hostile_messages(line: dict[str, Any]) -> list[object]:
    """What a worker must refuse, made of a line of a plan."""
    first = line["pairs"][0]
    return [
        {**line, "job": "other"},
        {**line, "job": "../job"},
        {**line, "index": 9, "count": 10},
        {**line, "index": 10**12, "count": 10**12 + 1},
        {**line, "pairs": [{**first, "image": "../../etc/passwd"}]},
        {**line, "pairs": [{**first, "image": "/etc/passwd"}]},
        {**line, "pairs": line["pairs"][1:]},
        {**line, "pairs": "text"},
        {**line, "surplus": 1},
        "text",
        None,
    ]
