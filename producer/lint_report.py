"""What lint found → a page that a person reads in ten seconds, and the same as JSON."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from producer.lint import LintedFolder
from shared.job import SPLITS
from shared.manifest import Finding, Rank

_BAR_LETTERS: Final = 40
# More classes than fit a screen are summed up in one line; `--json` has them all.
_CLASSES_SHOWN: Final = 20
_COLOURS: Final[Mapping[Rank, str]] = {
    "error": "bold red",
    "quarantined": "red",
    "dropped": "yellow",
    "mended": "cyan",
    "info": "dim",
}
# What a person can do about a kind of finding, where the finding itself does not say it.
_REMEDIES: Final[Mapping[str, str]] = {
    "ambiguous_stem": "keep each pair in a folder of its own",
    "class_unknown": "name it in --classes, --rename it, or --unknown skip",
    "exif_undecided": "look at some; --exif raw where boxes were drawn on unturned pixels",
    "link_outside": "copy the files into the folder",
    "listed_in_two": "take it out of one list",
    "listed_twice": "take the line out",
    "split_empty": "--split or --seed deals anew, ImageSets/Main lists decide",
}
# Kinds that say "this file is broken", of the XML (lint) and of the picture (workers).
_CORRUPT: Final = ("annotation_unreadable", "image_unreadable", "image_poison")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The figures of one lint. `kinds` counts the findings by (rank, kind), gravest first, then most."""

    folder: str
    counts: Mapping[str, int]
    split_rule: str
    class_counts: Mapping[str, int]
    box_sizes: Sequence[tuple[str, int]]
    boxes_tiny: int
    boxes_unsized: int
    image_size: int
    kinds: Mapping[tuple[Rank, str], int]
    objects_dropped: Mapping[str, int]
    examples: Mapping[str, Finding]

    def summary(self) -> str:
        """One sentence: pictures, those without objects, corrupt files, dropped boxes."""
        kinds = Counter({kind: count for (_, kind), count in self.kinds.items()})
        dropped = sum(self.objects_dropped.values())
        reasons = ", ".join(f"{count} {_words(kind)}" for kind, count in self.objects_dropped.items())
        parts = [
            f"{_plural(self.counts.get('images', 0), 'image')}",
            f"{self.counts.get('background', 0)} without objects",
            f"{sum(kinds[kind] for kind in _CORRUPT)} corrupt",
            f"{_plural(dropped, 'box', 'boxes')} dropped" + (f" ({reasons})" if reasons else ""),
        ]
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for `--json`."""
        return {
            "folder": self.folder,
            "summary": self.summary(),
            "counts": dict(self.counts),
            "split_rule": self.split_rule,
            "class_counts": dict(self.class_counts),
            "box_sizes": [{"shorter_side": name, "boxes": count} for name, count in self.box_sizes],
            "boxes_under_4_px": self.boxes_tiny,
            "boxes_of_unknown_size": self.boxes_unsized,
            "image_size": self.image_size,
            "findings": [
                {"rank": rank, "kind": kind, "count": count, "first": self.examples[kind].model_dump(mode="json")}
                for (rank, kind), count in self.kinds.items()
            ],
        }

    def render(self) -> RenderableType:
        """The page: summary, splits, classes, box sizes, kinds of findings."""
        return Group(*self._page())

    def _page(self) -> Iterable[RenderableType]:
        yield Text(self.summary(), style="bold")
        sizes = " / ".join(f"{self.counts.get(split, 0)} {split}" for split in SPLITS)
        yield Text(f"splits ({self.split_rule}): {sizes}")
        if self.class_counts:
            most_first = sorted(self.class_counts.items(), key=lambda entry: (-entry[1], entry[0]))
            yield _bars("class", most_first, most=_CLASSES_SHOWN)
            yield _bars(f"shorter side at {self.image_size} px", _without_empty_end(self.box_sizes))
        if self.boxes_tiny:
            yield Text(
                f"{_plural(self.boxes_tiny, 'box', 'boxes')} under 4 px: hardly to be learned; fewer with a larger "
                "--image-size",
                style="yellow",
            )
        if self.boxes_unsized:
            yield Text(f"{_plural(self.boxes_unsized, 'box', 'boxes')} in files that do not say their size")
        for (rank, kind), count in self.kinds.items():
            yield from _kind_lines(rank, kind, count, self.examples[kind])

    def next_steps(self, *, pixels: bool, listed: bool) -> str:
        """What to do now, for the end of `producer lint`.

        Args:
            pixels: The pictures were opened.
            listed: Every finding was written into a file.
        """
        errors = sum(count for (rank, _), count in self.kinds.items() if rank == "error")
        go_on = f"next: producer submit {shlex.quote(self.folder)}"
        lines = [f"{_plural(errors, 'finding')} of rank error: a submit would stop" if errors else go_on]
        more = (
            [] if pixels else ["mended, --pixels opens every picture" if errors else "--pixels opens every picture too"]
        )
        more += [] if listed or not self.kinds else ["--csv FILE lists every finding"]
        return "\n".join([*lines, *filter(None, ["; ".join(more)])])


def lint_report(linted: LintedFolder, findings: Iterable[Finding] | None = None) -> LintReport:
    """Sum up a lint.

    Args:
        linted: What names and XML said.
        findings: The merged findings of `lint --pixels` or of a finished job; those of `linted` by default.
    """
    kinds: Counter[tuple[Rank, str]] = Counter()
    objects_dropped: Counter[str] = Counter()
    examples: dict[str, Finding] = {}
    for finding in linted.findings if findings is None else findings:
        kinds[finding.rank, finding.kind] += 1
        examples.setdefault(finding.kind, finding)
        if finding.rank == "dropped" and finding.object_index is not None:
            objects_dropped[finding.kind] += 1
    ranks = list(get_args(Rank))
    gravest_first = sorted(kinds.items(), key=lambda entry: (-ranks.index(entry[0][0]), -entry[1], entry[0][1]))
    return LintReport(
        folder=str(linted.folder),
        counts=linted.counts,
        split_rule=linted.split_rule,
        class_counts=linted.class_counts,
        box_sizes=linted.boxes.rows(),
        boxes_tiny=linted.boxes.tiny,
        boxes_unsized=linted.boxes.unsized,
        image_size=linted.spec.image_size,
        kinds=dict(gravest_first),
        objects_dropped=dict(objects_dropped.most_common()),
        examples=examples,
    )


def _bars(title: str, rows: Sequence[tuple[str, int]], most: int | None = None) -> Table:
    """A bar chart in letters, the largest count at full width."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column(title)
    table.add_column("objects", justify="right")
    table.add_column("")
    largest = max((count for _, count in rows), default=0) or 1
    for name, count in rows[:most]:
        table.add_row(Text(name), f"{count:,}", Text("█" * round(_BAR_LETTERS * count / largest), style="blue"))
    if most is not None and len(rows) > most:
        table.add_row(f"… {len(rows) - most} more", f"{sum(count for _, count in rows[most:]):,}", "")
    return table


def _without_empty_end(rows: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """The rows up to the last one that counts anything."""
    last = max((place for place, (_, count) in enumerate(rows) if count), default=0)
    return rows[: last + 1]


def _kind_lines(rank: Rank, kind: str, count: int, first: Finding) -> Iterable[RenderableType]:
    """How often, of what rank, what was done and can be done; below it the first one, on one line."""
    remedy = _REMEDIES.get(kind)
    head = Text(f"{count:>7,} ").append(kind, style=_COLOURS[rank]).append(f" ({rank}): {first.done}")
    yield head.append(f"; {remedy}" if remedy else "")
    place = "" if first.file == "." else f"{first.file}: "
    index = "" if first.object_index is None else f"object {first.object_index}: "
    # What stops a submit is told in full, of the rest one line.
    found = Text(f"{place}{index}{first.found}", style="dim", no_wrap=rank != "error", overflow="ellipsis")
    yield Padding(found, (0, 0, 0, 8))


def _words(kind: str) -> str:
    """`box_zero_area` → `zero area`."""
    return kind.removeprefix("box_").removeprefix("object_").replace("_", " ")


def _plural(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
