"""`LabelMap`: class name <-> class id, fixed when a job is submitted.

Ids start at 1 (0 is background and never written) and follow the order of the sorted names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from shared.text import class_name


@dataclass(frozen=True)
class LabelMap:
    """The class names of a job in the order of their ids (`names[0]` has id 1)."""

    names: tuple[str, ...]

    @cached_property
    def ids(self) -> dict[str, int]:
        """Class name -> class id, from 1."""
        return {name: index for index, name in enumerate(self.names, start=1)}

    @cached_property
    def by_class_name(self) -> dict[str, int]:
        """`class_name` -> class id: names as they are read today match those of a job of an older version."""
        return {class_name(name): index for name, index in self.ids.items()} | self.ids

    def to_pbtxt(self) -> str:
        """`label_map.pbtxt` as the TF Object Detection API reads it (StringIntLabelMap, text format)."""
        return "".join(f"item {{\n  id: {index}\n  name: '{_quote(name)}'\n}}\n" for name, index in self.ids.items())

    def to_labels_txt(self) -> str:
        """`labels.txt` as TFLite clients read it: one name a line, line 0 is id 1, no background line."""
        return "".join(f"{name}\n" for name in self.names)


def label_map(names: Iterable[str]) -> LabelMap:
    """A `LabelMap` of the distinct `names`, sorted."""
    return LabelMap(tuple(sorted(set(names))))


def read_labels_txt(content: bytes) -> tuple[str, ...]:
    """The names in a `labels.txt`. Not by splitlines(): a name may hold other characters that it takes for line ends.

    Raises:
        ValueError: It is not UTF-8, has an empty line, or names a class twice.
    """
    names = tuple(content.decode().removesuffix("\n").split("\n"))
    if "" in names or len(set(names)) < len(names):
        raise ValueError("an empty line" if "" in names else "a class twice")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassChange:
    """What becomes of a trained network's classes in a run that continues it, by name."""

    kept: Sequence[str]
    new: Sequence[str]
    gone: Sequence[str]

    @classmethod
    def between(cls, before: Sequence[str], now: Sequence[str]) -> "ClassChange":
        """The change from the classes `before` to `now`, in their order there; accents may be composed or not."""
        before, now = (tuple(map(class_name, names)) for names in (before, now))
        return cls(
            kept=[name for name in now if name in before],
            new=[name for name in now if name not in before],
            gone=[name for name in before if name not in now],
        )


def _quote(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
