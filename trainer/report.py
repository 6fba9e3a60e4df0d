"""A run's figures and pictures → `report.html`, one file that needs no network, and `model_card.md`."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jinja2

from shared.job import Job, RunSpec
from shared.manifest import Manifest
from trainer.gate import Check
from trainer.layer_error import LayerError

_TEMPLATES: Final = Path(__file__).parent
_MEDIA: Final = {".png": "image/png", ".jpg": "image/jpeg"}
_LAYERS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """All that the report and the card say.

    `metrics` as in `metrics.json`; `plots` file name → bytes; `score` is the threshold that the pictures are drawn at;
    `timings` seconds a stage; `job` None where the store does not hold it any more.
    """

    spec: RunSpec
    manifest: Manifest
    job: Job | None
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


def reproduce_commands(spec: RunSpec, manifest: Manifest, job: Job | None) -> list[str]:
    """The commands that lead from the folder to the same model."""
    store = "--store STORE"
    dataset = job.dataset if job is not None else "FOLDER"
    submit = f"producer submit {dataset} --job {spec.job} {store} --local --wait"
    submit += f" --image-size {manifest.image_size} --resize {manifest.resize} --model {spec.model}"
    if spec.epochs is not None:
        submit += f" --epochs {spec.epochs}"
    return [
        submit,
        f"python -m trainer export {spec.run} {store}",
        f"python -m trainer evaluate {spec.run} {store}",
        f"python -m trainer predict STORE/runs/{spec.run}/model_int8.tflite PICTURES --out seen",
    ]


def _context(summary: RunSummary) -> dict[str, Any]:
    manifest, spec = summary.manifest, summary.spec
    return {
        "run": spec.run,
        "job": spec.job,
        "spec": spec,
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
        "passed": all(check.is_ok for check in summary.checks),
        "layers": summary.layers[:_LAYERS_SHOWN],
        "images": {name: _data_uri(name, content) for name, content in summary.plots.items()},
        "splits": {
            split: {"pictures": manifest.examples(split), "classes": manifest.class_counts.get(split, {})}
            for split in manifest.splits
        },
        "counters": dict(sorted(manifest.counters.items())),
        "asked": {name: value for name, value in spec.model_dump(mode="json").items() if value is not None},
        "timings": summary.timings,
        "commands": reproduce_commands(spec, manifest, summary.job),
    }


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
