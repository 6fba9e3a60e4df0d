"""Class names: those that an option names but no file has, and those that look like a typing mistake. Pure."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from rapidfuzz import fuzz, process
from rapidfuzz.distance import OSA

from shared.errors import OptionError
from shared.jobs.findings import Finding
from shared.specs.data import JobSpec
from shared.specs.options import spell

# If a name has at least this many times the objects of a similar one, the rarer name is a typing mistake, not a class.
_TIMES_MORE: Final = 5
# Shorter names are one typing mistake apart from too many others: cat, car, can.
_LETTERS_LEAST: Final = 4
# In names of at least this many letters, two wrong letters still count as a typing mistake.
_LETTERS_FOR_TWO: Final = 8
# What tools put between the words of a name, and what nobody sees. Beside a digit or a sign it may tell classes apart:
# `type 1-2`, `A-`.
_SEPARATORS: Final = re.compile("[\u200b-\u200d\u2060\ufeff]|(?<=[^\\W\\d_])[\\s_-]+(?=[^\\W\\d_])")
# A score of 0 to 100: names below it are too different to suggest.
_NEAR: Final = 60
_NAMES_SHOWN: Final = 10
# A mistyped name with at most this many objects gets a finding for each object.
_OBJECTS_NAMED: Final = 10

# Class name -> its objects, each as its file and its number in that file.
Where = Callable[[str], Sequence[tuple[str, int]]]


def require_known_names(spec: JobSpec, written: Mapping[str, int], before: Collection[str] = ()) -> None:
    """Refuse options that name classes which no object has.

    Args:
        spec: The options.
        written: How many objects have a name in their file.
        before: Names that objects had before they were corrected: options may still name them.

    Raises:
        OptionError: One line for each such name, with the nearest existing name.
    """
    renamed = Counter[str]()
    for name, count in written.items():
        renamed[spec.rename.get(name, name)] += count
    asked = [(f"--rename {spell({old: new})[0]}", old, written) for old, new in spec.rename.items()]
    asked += [(f"--classes {name}", name, renamed) for name in spec.classes or ()]
    asked += [(f"--ignore-classes {name}", name, {**renamed, **written}) for name in spec.ignore_classes]
    missing = [(option, name, counts) for option, name, counts in asked if not counts.get(name) and name not in before]
    # A name that something else is renamed to cannot be what a missing name was meant to be.
    taken = {new for old, new in spec.rename.items() if old != new}
    unknown = [
        f"{option}: {_no_such_class(name, counts, taken if option.startswith('--rename') else ())}"
        f"{_with_sign(name, written) if option.startswith('--rename') else ''}"
        for option, name, counts in missing
    ]
    if unknown:
        raise OptionError("\n".join(unknown))


def _with_sign(old: str, written: Collection[str]) -> str:
    """How to type `--rename` for a name that itself contains "=", if some name begins with `old` and "="."""
    longer = [name for name in written if name.startswith(f"{old}=")]
    return f"; {longer[0]!r} is typed `--rename {shlex.quote(spell({longer[0]: 'NEW'})[0])}`" if longer else ""


def _no_such_class(name: str, counts: Mapping[str, int], taken: Collection[str]) -> str:
    """The message about a name that no object has; names in `taken` are listed but not suggested."""
    near = [other for other in counts if other not in taken]
    nearest = process.extractOne(name, near, scorer=fuzz.ratio, processor=str.casefold, score_cutoff=_NEAR)
    there = Counter(counts).most_common(_NAMES_SHOWN)
    listed = ", ".join(f"{other!r} ({count})" for other, count in there)
    more = f" and {len(counts) - len(there)} more" if len(counts) > len(there) else ""
    meant = f"did you mean {nearest[0]!r} ({counts[nearest[0]]})?" if nearest else f"there are {listed}{more}"
    return f"no object is called {name!r}; {meant}"


def name_findings(counts: Mapping[str, int], where: Where = lambda _: ()) -> Iterator[Finding]:
    """Names that differ only in case, and names a typing mistake apart; `counts` are objects kept by class.

    Each object with a mistyped name gets a finding if there are few; if there are many, they get one finding without a
    file. All these findings have the same remedy: all the renames together.
    """
    typos = _typos(counts)
    cases = _cases(counts, typos)
    if cases:
        groups = (", ".join(f"{name!r}" for name in names) for names in cases)
        only_case = all(len(set(map(str.casefold, names))) == 1 for names in cases)
        what = "case" if only_case else "case, spaces, hyphens, underscores or invisible characters"
        found = f"class names differ only in {what}: {'; '.join(groups)}"
        yield Finding(file=".", rank="info", kind="class_case", found=found, done=_renames(_joined(cases, counts)))
    for name, meant in typos.items():
        found = f"{name} ({counts[name]}), did you mean {meant} ({counts[meant]})?"
        about = {"class_name": name[:200], "found": found, "done": _renames(typos)}
        objects = where(name) if counts[name] <= _OBJECTS_NAMED else ()
        for file, index in objects or ((".", None),):
            yield Finding(file=file, object_index=index, rank="info", kind="class_typo", **about)


def proposed_renames(counts: Mapping[str, int]) -> dict[str, str]:
    """Old name -> new name of every rename that `name_findings` proposes."""
    typos = _typos(counts)
    renames = {**_joined(_cases(counts, typos), counts), **typos}
    # The name that was meant may be a mistake itself: Quen -> quen -> queen.
    return {name: renames.get(meant, meant) for name, meant in renames.items()}


def _cases(counts: Mapping[str, int], typos: Mapping[str, str]) -> list[list[str]]:
    """Groups of names that differ only in spelling, unless all of a group are typing mistakes for another name."""
    groups = groupby(sorted(sorted(counts), key=_folded), key=_folded)
    alike = [list(names) for _, names in groups]
    # A rare `traffic_light` among many `traffic light` is a mistake, whose objects are named one by one.
    alike = [[name for name in names if typos.get(name) not in names] for names in alike]
    return [names for names in alike if len(names) > 1 and not typos.keys() >= set(names)]


def _folded(name: str) -> str:
    """The same for `Traffic Light`, `traffic_light` and `traffic-light`; of few letters only case is passed over."""
    folded = name.casefold()
    letters = _SEPARATORS.sub("", folded)
    return letters if len(letters) >= _LETTERS_LEAST else folded


def _joined(cases: list[list[str]], counts: Mapping[str, int]) -> dict[str, str]:
    """Each other name of a group -> the name of that group that most objects have."""
    most = [(names, max(names, key=counts.__getitem__)) for names in cases]
    return {name: usual for names, usual in most for name in names if name != usual}


def _renames(renames: Mapping[str, str]) -> str:
    options = shlex.join([word for text in spell(renames) for word in ("--rename", text)])
    return f"kept apart; to join them: `{options}`"


def _typos(counts: Mapping[str, int]) -> dict[str, str]:
    """The name that was meant, for each name that looks like a typing mistake."""
    typos = {}
    for name in sorted(counts):
        likely = [
            other
            for other, count in counts.items()
            if 0 < counts[name] * _TIMES_MORE <= count and _is_typing_mistake(name.casefold(), other.casefold())
        ]
        if likely:
            typos[name] = max(likely, key=counts.__getitem__)
    return typos


def _is_typing_mistake(name: str, meant: str) -> bool:
    letters = max(len(name), len(meant))
    if letters < _LETTERS_LEAST or _digits(name) != _digits(meant):  # `class1` and `class2` are two classes
        return False
    mistakes = 2 if letters >= _LETTERS_FOR_TWO else 1
    return 0 < OSA.distance(name, meant, score_cutoff=mistakes) <= mistakes


def _digits(name: str) -> list[str]:
    return [letter for letter in name if letter.isdigit()]
