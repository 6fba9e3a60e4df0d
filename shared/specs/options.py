"""Models whose fields carry their command-line option -> options to parse, to show and to type again.

A field is an option if its annotation has an `Option`. The model is the only place that knows the option's help,
default and bounds; the command line, `reproduce` and the table in the documents are made from it here.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ValidationError

from shared.errors import OptionError
from shared.text import collapsed

Group = Literal["Data", "Splits", "Training", "Changes to training pictures", "Output"]
Model = TypeVar("Model", bound=BaseModel)

# What a switch sets if the field's default is 0: the change is made to half of the pictures.
SWITCHED_ON: Final = 0.5

# In `old=new`, `\=` in the old name stands for an equals sign, and `\\` for a backslash in front of one. Other
# backslashes are taken literally: control characters in class names are shown with them.
_RENAME: Final = re.compile(r"((?:[^=\\]|\\[=\\]|\\(?![=\\]))*)=(.*)", re.DOTALL)
_UNESCAPED: Final = re.compile(r"\\([=\\])")
_ESCAPED: Final = re.compile(r"=|\\(?=[=\\]|$)")
_BACKSLASH: Final = r"\\\g<0>"


@dataclass(frozen=True, slots=True)
class Option:
    """How a person sets a field on the command line.

    `flags` is the option's name if it is not the field's. A switch, `--on` or `--on/--off`, is typed without a value
    and sets a number to 0 or to its usual strength; several fields may share one. A common option is one that people
    need first.
    """

    help: str
    group: Group
    flags: str = ""
    is_switch: bool = False
    is_common: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOption:
    """An option of a model, with the path, annotation and default of its field."""

    option: Option
    path: tuple[str, ...]
    annotation: Any
    default: Any

    @property
    def is_switch(self) -> bool:
        """Whether the option is typed without a value."""
        return self.option.is_switch or self.annotation is bool

    @property
    def flags(self) -> str:
        """The option as it is declared: `--zoom`, `--flips/--no-flips`, `--vertical-flips`."""
        return self.option.flags or f"--{self.path[-1].replace('_', '-')}"

    @property
    def name(self) -> str:
        """The option as a Python name: `vertical_flips`; `from_`, because `from` is a keyword."""
        name = self.flags.split("/")[0].removeprefix("--").replace("-", "_")
        return f"{name}_" if iskeyword(name) else name

    def typed(self, value: Any) -> list[str]:
        """The words that set the field to `value`; none if a switch has no word for it."""
        if self.is_switch:
            on, _, off = self.flags.partition("/")
            return [on] if value else [off] if off else []
        return [word for text in spell(value) for word in (self.flags, text)]


def spell(value: Any) -> list[str]:
    """A field's value as texts, one for each time that its option must be typed."""
    match value:
        case dict():
            return [f"{_ESCAPED.sub(_BACKSLASH, old)}={new}" for old, new in value.items()]
        case (int(), int(), int()):
            return ["/".join(map(str, value))]
        case tuple():
            return [",".join(value)]
        case None:  # a person can set only a bound to None, by typing 0
            return ["0"]
        case _:
            return [str(value).removesuffix(".0")]


def options_of(model: type[BaseModel]) -> Iterator[ModelOption]:
    """The options of `model` and of the models nested in it, in the order of their fields."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (replace(inner, path=(name, *inner.path)) for inner in options_of(field.annotation))
        for option in (metadata for metadata in field.metadata if isinstance(metadata, Option)):
            default = field.get_default(call_default_factory=True)
            yield ModelOption(option=option, path=(name,), annotation=field.annotation, default=default)


def words(asked: BaseModel, model: type[BaseModel], always: Collection[str] = ()) -> list[str]:
    """The words a person types to get `asked`: the options of `model` that are not at their defaults.

    Args:
        asked: What was asked for; has the fields of `model`.
        model: The model whose options are used.
        always: Names of options that are typed even at their defaults.
    """
    typed: dict[str, list[str]] = {}  # by option name, because fields may share a switch
    for option in options_of(model):
        value: Any = asked
        for step in option.path:
            value = getattr(value, step)
        is_usual = bool(value) == bool(option.default) if option.is_switch else value == option.default
        if option.name in always or not is_usual:
            typed[option.name] = option.typed(value)
    return [word for texts in typed.values() for word in texts]


def parse_options(model: type[Model], typed: Mapping[str, Any]) -> Model:
    """The typed options as a `model`.

    Args:
        model: Its fields define what is allowed.
        typed: The values by option name; None if nothing was typed. Switches are booleans.

    Raises:
        OptionError: A value is not allowed; the text names the option.
    """
    options, fields = list(options_of(model)), dict[str, Any]()
    for option in options:
        value = typed[option.name]
        if value is None:
            continue
        if option.is_switch and option.annotation is not bool:
            value = (option.default or SWITCHED_ON) if value else 0.0
        target = fields
        for step in option.path[:-1]:
            target = target.setdefault(step, {})
        target[option.path[-1]] = value
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise OptionError("\n".join(_fault_texts(error, options, typed))) from error


def _fault_texts(error: ValidationError, options: list[ModelOption], typed: Mapping[str, Any]) -> Iterator[str]:
    """One line per fault: the option as it was typed, and what was expected."""
    for fault in error.errors():
        expected = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
        found = [option for option in options if fault["loc"][: len(option.path)] == option.path]
        value = typed[found[0].name] if found else ""
        text = " ".join(value) if isinstance(value, list) else str(value).removesuffix(".0")
        yield f"{found[0].flags} {text}: {expected}" if found else expected


def plain_type(annotation: Any) -> Any:
    """The type of what a person types for a field: text for tuples, texts for mappings, else the field's own type."""
    if get_origin(annotation) in (Union, UnionType):
        return plain_type(next(part for part in get_args(annotation) if part is not NoneType)) | None
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    return {tuple: str, dict: list[str] | None}.get(get_origin(annotation), annotation)


def _shares(typed: str) -> tuple[int, ...]:
    try:
        shares = [float(part) for part in re.split("[/,:]", typed)]
    except ValueError:
        shares = []
    if math.isclose(sum(shares), 1):  # 0.8/0.1/0.1
        shares = [round(share * 100, 9) for share in shares]
    if len(shares) != 3 or not all(share.is_integer() for share in shares):
        raise ValueError("expected three shares in whole percent, such as 80/10/10")
    return tuple(map(int, shares))


def _renames(typed: list[str]) -> dict[str, str]:
    found = [_RENAME.fullmatch(text) for text in typed]
    pairs = [(_UNESCAPED.sub(r"\1", each[1]), each[2]) for each in found if each is not None]
    if len(pairs) < len(typed) or not all(collapsed(old) and collapsed(new) for old, new in pairs):
        raise ValueError("expected old=new")
    if any(re.search(r",[^,=]+=", new) for _, new in pairs):
        raise ValueError("one old=new each; give --rename several times")
    renamed: dict[str, str] = {}
    for old, new in pairs:
        if renamed.setdefault(old, new) != new:
            raise ValueError(f"{old} cannot become both {renamed[old]} and {new}")
    return renamed


# Parsers of three kinds of options: `80/10/10`, `a,b`, and `old=new` (several times).
SharesText: Final = BeforeValidator(lambda typed: _shares(typed) if isinstance(typed, str) else typed)
NamesText: Final = BeforeValidator(
    lambda typed: tuple(filter(None, map(collapsed, typed.split(",")))) if isinstance(typed, str) else typed
)
RenamesText: Final = BeforeValidator(lambda typed: _renames(typed) if isinstance(typed, list) else typed)
# For options whose 0 means "no bound".
ZeroIsNone: Final = BeforeValidator(lambda typed: typed or None)
