"""Figures as a person reads them: percent, durations, ages. Files hold fractions and seconds."""

from collections.abc import Sequence

from shared.text import counted


def percent(fraction: float) -> str:
    """`91.4 %`."""
    return f"{100 * fraction:.1f} %"


def map_text(value: float, interval: Sequence[float] | None, objects: int | None = None) -> str:
    """`91.4 % (88.0 to 94.1, 26 objects)`: a mAP, its 95 % interval, and how many objects it was measured on.

    With 0 objects nothing was measured, whatever `value` is.
    """
    if objects == 0:
        return "not measured (0 objects)"
    facts = [] if interval is None else [f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"]
    facts += [] if objects is None else [counted(objects, "object")]
    return percent(value) + (f" ({', '.join(facts)})" if facts else "")


def duration(seconds: float) -> str:
    """`0:09`, `12:05`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def age(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 d`: how long ago something was, in the largest unit that fits."""
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size_s:
            return f"{seconds // size_s:.0f} {unit}"
    return f"{seconds:.0f} s"
