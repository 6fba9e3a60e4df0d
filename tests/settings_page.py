"""Prints `docs/settings.md` from the settings classes and the option models: `python -m tests.settings_page`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from producer.settings import ProducerSettings
from shared.settings import CommonSettings
from shared.specs.augmentation import Augmentation
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from trainer.settings import TrainerSettings
from worker.settings import WorkerSettings

PAGE: Final = Path(__file__).resolve().parents[1] / "docs/settings.md"
SERVICES: Final[Mapping[str, type[BaseModel]]] = {
    "all": CommonSettings,
    "producer": ProducerSettings,
    "worker": WorkerSettings,
    "trainer": TrainerSettings,
}
OPTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "What a job asks for: `spec` in `job.json`": JobSpec,
    "What a training asks for: `run` in `job.json`, `request.json`": TrainingOptions,
    "Changes to training pictures: `augmentation` of a training": Augmentation,
}
# Written by the program itself into every request; nobody asks for them.
NOT_ASKED: Final = frozenset({"schema_version", "incarnation"})
BOUNDS: Final[Mapping[str, str]] = {
    "ge": "≥ {}",
    "gt": "> {}",
    "le": "≤ {}",
    "lt": "< {}",
    "multiple_of": "a multiple of {}",
}
INTRODUCTION: Final = """# Settings and options

Printed by `python -m tests.settings_page > docs/settings.md`; a test compares it with the classes.

## Settings, from the environment

Read once, when a program starts. `.env.example` has them together with the variables of Docker Compose."""
OPTIONS_INTRODUCTION: Final = """## Options, from the command line

Saved with the job and the run under these names (for `auto`, the backbone that was chosen); `voc2tflite submit --help`
shows them in groups."""


def page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        table(("variable", "of", "default", "values", "what"), _settings_rows()),
        OPTIONS_INTRODUCTION,
    ]
    for title, model in OPTIONS.items():
        parts += [f"### {title}", table(("field", "option", "default", "values", "what"), _option_rows(model))]
    return "\n\n".join(parts) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _settings_rows() -> Iterator[tuple[str, ...]]:
    for service, settings in SERVICES.items():
        for name, field in settings.model_fields.items():
            if service == "all" or name not in CommonSettings.model_fields:
                yield f"`VOC_{name.upper()}`", service, _default(field), _values(field), field.description or ""


def _option_rows(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if name not in NOT_ASKED:
            yield f"`{name}`", _option(name, field), _default(field), _values(field), _text(field)


def _option(name: str, field: FieldInfo) -> str:
    """How a person asks for a field; empty where the field says nothing of an option."""
    for note in field.metadata:
        if hasattr(note, "flags"):
            return f"`{note.flags or '--' + name.replace('_', '-')}`"
    return ""


def _text(field: FieldInfo) -> str:
    """What a field means: its own description, or the help of its option."""
    return field.description or next((str(note.help) for note in field.metadata if hasattr(note, "help")), "")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=True)
    if value is None or value == "":
        return ""
    if isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, tuple | dict):
        return f"`{json.dumps(value)}`" if value else ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(field: FieldInfo) -> str:
    """The choices of a field, or its bounds."""
    kinds = list(_plain_types(field.annotation))
    choices = [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    bounds = [
        text.format(getattr(rule, name))
        for rule in _rules(field)
        for name, text in BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    if bool in kinds:
        choices = ["true", "false"]
    return ", ".join([f"`{choice}`" for choice in choices] + bounds)


def _rules(field: FieldInfo) -> Iterator[Any]:
    """The bounds of a field, written at the field or inside a union of its type."""
    yield from field.metadata
    for kind in get_args(field.annotation):
        if get_origin(kind) is Annotated:
            for rule in get_args(kind)[1:]:
                yield from rule.metadata if isinstance(rule, FieldInfo) else (rule,)


def _plain_types(annotation: Any) -> Iterator[Any]:
    """The types of a union, or the one type; notes of `Annotated` are left out."""
    if get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _plain_types(part)
    elif get_origin(annotation) is Annotated:
        yield from _plain_types(get_args(annotation)[0])
    else:
        yield annotation


if __name__ == "__main__":
    print(page(), end="")
