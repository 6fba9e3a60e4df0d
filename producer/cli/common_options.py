"""The options that several commands of the producer share, and how a pydantic model's fields become options."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from shared.errors import OptionError
from shared.specs.options import Group, ModelOption, options_of, parse_options, plain_type, spell
from shared.specs.training import TrainingOptions

# How many letters of a type fit beside its option at 80 columns.
_MOST_SHOWN: Final = 24

JobName = Annotated[str, typer.Argument(help="The job's name.")]
RunOption = Annotated[str | None, typer.Option("--run", help="Which run, if the job has several.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Where jobs are kept: a folder or s3://, gs://, az:// [dim](VOC_STORE)[/dim]."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
LocalOption = Annotated[bool, typer.Option("--local", help="Run everything on this machine: broker, workers, trainer.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the end, with progress.")]
NotifyOption = Annotated[
    str | None,
    typer.Option(
        "--notify",
        metavar="URL|@FILE",
        help="Post a small JSON to this URL at the end. If it is secret, use @FILE or VOC_NOTIFY_URL.",
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, help="Worker processes, if they run on this machine.")]


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each pydantic model among a command's parameters by the options for its fields.

    The command is called with the models, made from what was typed. It raises an `OptionError` for a value that a model
    does not allow.
    """
    parameters: dict[str, inspect.Parameter] = {}
    models: dict[str, type[BaseModel]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, BaseModel):
            models[parameter.name] = parameter.annotation
            for asked in options_of(parameter.annotation):
                parameters.setdefault(asked.name, _parameter(asked))  # two models may share an option
        else:
            parameters[parameter.name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    own = inspect.signature(command).parameters.keys() - models.keys()

    @wraps(command)
    def run(**typed: Any) -> None:
        asked = {name: parse_options(model, typed) for name, model in models.items()}
        command(**asked, **{name: typed[name] for name in own})

    run.__signature__ = inspect.Signature(sorted(parameters.values(), key=_panel))  # type: ignore[attr-defined]
    return run


def typed_fields(context: typer.Context, model: type[BaseModel]) -> frozenset[str]:
    """The fields of `model` that a person has typed, even if typed with their default values."""
    return frozenset(asked.path[0] for asked in _typed_options(context, model))


def refuse_training_options(context: typer.Context, run: str | None) -> None:
    """Refuse options of a training together with `--no-train`, except the seed, which also decides the split.

    Raises:
        OptionError: There are such options.
    """
    typed = [asked.flags for asked in _typed_options(context, TrainingOptions) if asked.path != ("seed",)]
    typed += ["--run"] if run is not None else []
    if typed:
        raise OptionError(f"--no-train: expected no option of a training, found {', '.join(typed)}; leave either out")


def _typed_options(context: typer.Context, model: type[BaseModel]) -> list[ModelOption]:
    sources = ((asked, context.get_parameter_source(asked.name)) for asked in options_of(model))
    return [asked for asked, source in sources if source is not None and source.name == "COMMANDLINE"]


def _panel(parameter: inspect.Parameter) -> int:
    """The position of the parameter's panel in the help; arguments and common options have no panel and come first."""
    if parameter.annotation is typer.Context:
        return 0
    panel = parameter.annotation.__metadata__[0].rich_help_panel
    return 1 + get_args(Group).index(panel) if panel else 0


def _shown_choices(typed: Any, text: str) -> tuple[str | None, str]:
    """The type and the help of an option: if its values do not fit beside it, the help lists them."""
    literal = next((each for each in (typed, *get_args(typed)) if get_origin(each) is Literal), None)  # of `… | None`
    values = get_args(literal)
    if len("|".join(map(str, values))) <= _MOST_SHOWN:
        return None, text
    return "NAME", f"{text} One of {', '.join(map(str, values))}."


def _parameter(asked: ModelOption) -> inspect.Parameter:
    """An option in typer's form; common options are in the first panel of the help, without a title of their own.

    The model checks the value, so that the same values are refused however they come in.
    """
    option = asked.option
    typed = bool if asked.is_switch else plain_type(asked.annotation)
    default: Any = asked.default
    if asked.is_switch:
        default = bool(default)
    elif isinstance(default, dict | tuple):
        default = next(iter(spell(default)), None)
    metavar, text = _shown_choices(typed, option.help)
    panel = None if option.is_common else option.group
    declared = typer.Option(asked.flags, metavar=metavar, help=text, rich_help_panel=panel)
    return inspect.Parameter(
        asked.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, declared]
    )
