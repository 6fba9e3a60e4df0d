"""A run's figures and pictures → `report.html`, one file that needs no network, and `model_card.md`."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jinja2

from shared import __version__
from shared.job import SPLITS, RunSpec
from shared.manifest import Manifest
from trainer.asked import Asked
from trainer.gate import Check
from trainer.layer_error import LayerError
from trainer.reproduce import reproduce_commands

_TEMPLATES: Final = Path(__file__).parent
_MEDIA: Final = {".png": "image/png", ".jpg": "image/jpeg"}
_LAYERS_SHOWN: Final = 8
_KINDS_SHOWN: Final = 20
_COMMAND_CHARACTERS: Final = 100

# Of a request: what only the store needs to know, and what a digest or a file says better.
_NOT_ASKED: Final = {"schema_version", "run", "job", "kind", "dry"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """All that the report and the card say.

    `metrics` as in `metrics.json`; `plots` file name → bytes; `score` is the threshold that the pictures are drawn at;
    `timings` seconds a stage.
    """

    spec: RunSpec
    manifest: Manifest
    asked: Asked
    metrics: Mapping[str, Mapping[str, Any]]
    checks: Sequence[Check]
    layers: Sequence[LayerError]
    plots: Mapping[str, bytes]
    timings: Mapping[str, float]
    measured_split: str
    gate_split: str
    score: float


def render_report(summary: RunSummary) -> str:
    """The page, pictures inside."""
    return _environment(is_html=True).get_template("report.html.j2").render(**_context(summary))


def render_card(summary: RunSummary) -> str:
    """The model card, Markdown; sections after Mitchell et al., "Model Cards for Model Reporting" (2019)."""
    return _environment(is_html=False).get_template("model_card.md.j2").render(**_context(summary))


def _context(summary: RunSummary) -> dict[str, Any]:
    manifest, spec, job = summary.manifest, summary.spec, summary.asked.job
    lint = summary.asked.lint
    return {
        "run": spec.run,
        "job": spec.job,
        "spec": spec,
        "version": __version__,
        "labels": manifest.labels,
        "image_size": manifest.image_size,
        "resize": manifest.resize,
        "digest": manifest.request_digest,
        "metrics": summary.metrics,
        "thread_counts": list(summary.metrics["int8"]["latency_ms"]),
        "measured_split": summary.measured_split,
        "gate_split": summary.gate_split,
        "score": summary.score,
        "checks": summary.checks,
        "check_rows": check_rows(summary.checks, list(summary.metrics)),
        "passed": all(check.is_ok for check in summary.checks),
        "layers": summary.layers[:_LAYERS_SHOWN],
        "images": {name: _data_uri(name, content) for name, content in summary.plots.items()},
        "splits": {
            split: {"pictures": manifest.examples(split), "classes": manifest.class_counts.get(split, {})}
            for split in SPLITS
            if split in manifest.splits
        },
        "counters": manifest.counters,
        "lint": None if lint is None else lint[:_KINDS_SHOWN],
        "lint_left_out": 0 if lint is None else len(lint[_KINDS_SHOWN:]),
        "failed_shards": manifest.failed,
        "dataset": None if job is None else job.dataset,
        "asked_data": {} if job is None else _asked(job.spec.model_dump(mode="json")),
        "asked_training": _asked(spec.model_dump(mode="json", exclude={"augmentation"})),
        "asked_changes": spec.augmentation.model_dump(mode="json"),
        "timings": summary.timings,
        "commands": [_folded(command) for command in reproduce_commands(spec, job)],
    }


def _folded(command: str) -> str:
    """A command of more than a line's length as several, broken before options."""
    lines, *options = command.split(" --")
    for option in options:
        is_full = len(lines.rsplit("\n", 1)[-1]) + len(option) > _COMMAND_CHARACTERS
        lines += f" \\\n  --{option}" if is_full else f" --{option}"
    return lines


def _asked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that say something."""
    return {name: value for name, value in fields.items() if name not in _NOT_ASKED and value not in (None, [], {})}


def check_rows(checks: Sequence[Check], forms: Sequence[str]) -> dict[str, list[Check | None]]:
    """The checks as a table: question → one entry a form, None where that form was not asked.

    A check's name is `form: question`.
    """
    rows: dict[str, list[Check | None]] = {}
    for check in checks:
        form, question = check.name.split(": ", 1)
        rows.setdefault(question, [None] * len(forms))[forms.index(form)] = check
    return rows


def _environment(*, is_html: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=is_html,  # noqa: S701 - the other template is Markdown
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: "-" if value is None else f"{100 * value:.1f}"
    environment.filters["size"] = lambda size_bytes: (
        f"{size_bytes / 1e6:.2f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} kB"
    )
    return environment


def _data_uri(name: str, content: bytes) -> str:
    return f"data:{_MEDIA[Path(name).suffix]};base64,{base64.b64encode(content).decode()}"
