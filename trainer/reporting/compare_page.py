"""Runs side by side -> one HTML page that needs no network, styled like the report."""

from collections.abc import Sequence
from typing import Any, Final

from shared import __version__
from trainer.reporting.compare import Compared, differing_settings
from trainer.reporting.paired import Difference, Paired
from trainer.reporting.templates import environment

# The least scale of a pair's bars, in points, so that small differences do not look large.
_LEAST_SCALE: Final = 5.0


def compare_page(rows: Sequence[Compared], pairs: Sequence[Paired], why_not: Sequence[str]) -> str:
    """The page of `rows` as HTML; `why_not` has a line for each run that is in no pair."""
    return (
        environment(is_html=True)
        .get_template("compare.html.j2")
        .render(
            version=__version__,
            rows=rows,
            settings=differing_settings(rows),
            pairs=[{"pair": pair, "bars": _bars(pair)} for pair in pairs],
            why_not=why_not,
        )
    )


def _bars(pair: Paired) -> list[dict[str, Any]]:
    """The rows of a pair with their intervals and points in percent of a track whose middle means no difference."""
    ends = [abs(end) for row in pair.rows if row.interval is not None for end in row.interval]
    scale = max([_LEAST_SCALE, *ends])
    return [{"row": row, **_bar(row, scale)} for row in pair.rows]


def _bar(row: Difference, scale: float) -> dict[str, float]:
    if row.interval is None or row.points is None:
        return {}
    low, high, at = (50 + 50 * value / scale for value in (*row.interval, row.points))
    return {"low": low, "width": high - low, "at": at}
