"""What lint found -> a page that a person reads in ten seconds, and the same as JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from rich.console import RenderableType, group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from producer.dataset.class_names import proposed_renames
from producer.dataset.lint import LintedFolder
from producer.dataset.other_formats import without_command
from producer.dataset.set_checks import TO_PIXELS
from shared.command import hint
from shared.jobs.findings import EMPTIED, Finding, Rank
from shared.jobs.job import SPLITS
from shared.specs.data import DataOptions, JobSpec
from shared.specs.options import words
from shared.text import counted

if TYPE_CHECKING:
    from shared.storage import Storage

_BAR_LETTERS: Final = 40
# How many classes are shown; the rest is summed up in one line, and `--json` has them all.
_CLASSES_SHOWN: Final = 20
# How many of the files set aside are named.
_FILES_NAMED: Final = 3
_COLOURS: Final[Mapping[Rank, str]] = {
    "error": "bold red",
    "quarantined": "red",
    "dropped": "yellow",
    "mended": "cyan",
    "info": "dim",
}
# What a person can do about a kind of finding, if the finding itself does not say it. As in a finding, what is to be
# typed comes at the end, between back quotes.
_REMEDIES: Final[Mapping[str, str]] = {
    "ambiguous_stem": "keep one XML for each photo, and photos of the same name in folders of their own",
    "box_far_larger": "look whether it is drawn around its object",
    "annotation_unreadable": "repair the file, or label the picture again",
    "boxes_normalized": TO_PIXELS,
    "class_unknown": "name it in --classes, --rename it, or leave it out: `--unknown skip`",
    "copies_across_splits": "put all copies of one photo into one split",
    "duplicate": "delete one of the two",
    "duplicate_conflicting": "delete the one with the wrong labels",
    "near_duplicate_across_splits": "photos of one scene belong into one split: lists, or `--group-by '(.*)_'`",
    "exif_undecided": "look at some; if boxes were drawn on unturned pixels: `--exif raw`",
    "link_outside": "copy the files into the folder",
    "listed_in_two": "remove it from one list",
    "list_not_read": "if it is one, put its names into train.txt, val.txt or test.txt in ImageSets/Main",
    "not_listed": "to use it, name it in a list in ImageSets/Main; or delete the lists for --split to deal all",
    "name_control_character": "rename it",
    "name_not_utf8": "rename it",
    "size_differs": "if photos were made smaller after labelling, boxes are misplaced: use the photos as labelled",
    "image_unreadable": "open it; if it is damaged, copy it again, or delete it with its XML",
}
# Kinds that mean "this file is broken": of the XML (found by lint) and of the picture (found by workers).
_CORRUPT: Final = ("annotation_unreadable", "image_unreadable", "image_poison")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """One lint and the sums of its findings.

    `kinds` counts them by (rank, kind), the gravest rank first, then the most frequent. `examples` has the first of
    each kind, `set_aside` the first few files of each kind of rank quarantined.
    """

    linted: LintedFolder
    kinds: Mapping[tuple[Rank, str], int]
    objects_dropped: Mapping[str, int]
    examples: Mapping[str, Finding]
    set_aside: Mapping[str, Sequence[str]]

    def summary(self) -> str:
        """One sentence: pictures, those without objects, corrupt files, dropped boxes."""
        kinds = Counter({kind: count for (_, kind), count in self.kinds.items()})
        dropped = sum(self.objects_dropped.values())
        reasons = [  # `box_zero_area` -> `zero area`
            f"{count} {kind.removeprefix('box_').removeprefix('object_').replace('_', ' ')}"
            for kind, count in self.objects_dropped.items()
        ]
        emptied = self.linted.counts["emptied"]
        facts = [
            f"{counted(self.linted.counts['images'], 'image')}, {self.linted.counts['background']} without objects",
            f"{emptied} with no box inside the picture" if emptied else "",
            f"{sum(kinds[kind] for kind in _CORRUPT)} corrupt",
            f"{counted(dropped, 'box', 'boxes')} dropped" + (f" ({', '.join(reasons)})" if reasons else ""),
        ]
        return ", ".join(filter(None, facts))

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for `--json`."""
        linted = self.linted
        return {
            "folder": str(linted.folder),
            "summary": self.summary(),
            "counts": linted.counts,
            "split_rule": linted.split_rule,
            "class_counts": linted.class_counts,
            "box_sizes": [{"shorter_side": name, "boxes": count} for name, count in linted.boxes.rows()],
            "boxes_under_4_px": linted.boxes.tiny,
            "boxes_of_unknown_size": linted.boxes.unsized,
            "image_size": linted.spec.image_size,
            "findings": [
                {"rank": rank, "kind": kind, "count": count, "first": self.examples[kind].model_dump(mode="json")}
                for (rank, kind), count in self.kinds.items()
            ],
        }

    @group()
    def render(self) -> Iterable[RenderableType]:
        """The page: summary, splits, classes, box sizes, kinds of findings. Print it without cropping."""
        linted, boxes = self.linted, self.linted.boxes
        yield Text(self.summary(), style="bold")
        sizes = " / ".join(f"{linted.counts[split]} {split}" for split in SPLITS)
        if "no_usable_pair" not in self.examples or any(linted.counts[split] for split in SPLITS):
            yield Text(f"splits ({linted.split_rule}): {sizes}")
        if linted.class_counts:
            most_first = sorted(linted.class_counts.items(), key=lambda entry: (-entry[1], entry[0]))
            yield _bars("class", most_first, most=_CLASSES_SHOWN)
            yield _bars(f"shorter side at {linted.spec.image_size} px", _without_empty_end(boxes.rows()))
        if boxes.tiny:
            advice = "under 4 px, hardly to be learned: a larger --image-size makes them larger"
            yield Text(f"{counted(boxes.tiny, 'box', 'boxes')} {advice}", style="yellow")
        if boxes.unsized:
            yield Text(f"{counted(boxes.unsized, 'box', 'boxes')} in files that do not say their size")
        for (rank, kind), count in self.kinds.items():
            yield from _kind_lines(rank, kind, count, self.examples[kind])
            if others := self.set_aside.get(kind, ())[1:]:
                yield Text(f"        and {', '.join(others)}{' …' if count > _FILES_NAMED else ''}", style="dim")

    def next_steps(
        self, dataset: object, *, pixels: bool, listed: bool, strict: bool = False, store: "Storage | None" = None
    ) -> str:
        """What to do now, for the end of `lint`.

        Args:
            dataset: What a person asked about: the folder, or the archive that it came from.
            pixels: Whether the pictures were opened.
            listed: Whether every finding was written into a file.
            strict: Whether no finding at all is allowed.
            store: The store that was named for this lint, to be named for the submit too.
        """
        errors = sum(count for (rank, _), count in self.kinds.items() if rank == "error")
        go_on = f"next: {hint('submit', dataset, *words(self._renamed_spec(), DataOptions), store=store)}"
        refused = strict and bool(self.kinds)
        first = f"--strict: {counted(sum(self.kinds.values()), 'finding')}, and none is allowed" if refused else go_on
        first = f"{counted(errors, 'finding')} of rank error: a submit would stop" if errors else first
        unusable = self.examples.get("no_usable_pair")
        remedy = without_command(unusable.found)[1] if unusable else ""
        first += f"\n{remedy}" if remedy else ""
        opened = "once that is fixed, --pixels opens every picture" if errors else "--pixels opens every picture too"
        more = [] if pixels else [opened]
        more += [] if listed or not self.kinds else ["--csv FILE lists every finding"]
        return f"{first}\n{'; '.join(more)}".rstrip("\n")

    def _renamed_spec(self) -> JobSpec:
        """The options as asked, with the renames that the findings propose."""
        spec, renames = self.linted.spec, proposed_renames(self.linted.class_counts)
        joined = {old: renames.get(new, new) for old, new in spec.rename.items()}
        kept = spec.classes and tuple(name for name in spec.classes if name not in renames)
        return spec.model_copy(update={"rename": {**joined, **renames}, "classes": kept})


def lint_report(linted: LintedFolder, findings: Iterable[Finding] | None = None) -> LintReport:
    """Sum up a lint.

    Args:
        linted: What names and XML said.
        findings: The merged findings of `lint --pixels` or of a finished job; those of `linted` by default.
    """
    kinds: Counter[tuple[Rank, str]] = Counter()
    objects_dropped: Counter[str] = Counter()
    examples: dict[str, Finding] = {}
    set_aside: dict[str, list[str]] = {}
    for finding in linted.findings if findings is None else findings:
        kinds[finding.rank, finding.kind] += 1
        examples.setdefault(finding.kind, finding)
        if finding.rank == "quarantined" and len(files := set_aside.setdefault(finding.kind, [])) < _FILES_NAMED:
            files.append(finding.file)
        if finding.rank == "dropped" and finding.object_index is not None:
            objects_dropped[finding.kind] += 1
    ranks = list(get_args(Rank))
    gravest_first = sorted(kinds.items(), key=lambda entry: (-ranks.index(entry[0][0]), -entry[1], entry[0][1]))
    return LintReport(
        linted=linted,
        kinds=dict(gravest_first),
        objects_dropped=dict(objects_dropped.most_common()),
        examples=examples,
        set_aside=set_aside,
    )


def _bars(title: str, rows: Sequence[tuple[str, int]], most: int | None = None) -> Table:
    """A bar chart in letters, the largest count at full width."""
    table = Table(title, Column("objects", justify="right"), "", box=None, padding=(0, 1), pad_edge=False)
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
    """Lines on one kind: count, rank, what was done and what can be done; below, the first finding on one line."""
    done = first.done.removesuffix(EMPTIED)  # the suffix is about this photo only
    advice, _, typed = "; ".join(filter(None, (done, _REMEDIES.get(kind)))).partition("`")
    yield Text(f"{count:>7,} ").append(kind, style=_COLOURS[rank]).append(f" ({rank}): {advice.rstrip()}")
    if typed:  # on one line, however narrow the terminal is, so that it can be copied
        yield Text(f"        {typed.removesuffix('`')}", no_wrap=True, overflow="ignore")
    place = "" if first.file == "." else f"{first.file}: "
    index = "" if first.object_index is None else f"object {first.object_index}: "
    # What stops a submit is shown in full, other findings on one line.
    says, _ = without_command(first.found)  # the command is among the next steps
    says += EMPTIED if done != first.done else ""
    found = Text(f"{place}{index}{says}", style="dim", no_wrap=rank != "error", overflow="ellipsis")
    yield Padding(found, (0, 0, 0, 8))
