"""A run's figures and pictures -> `report.html`, one file that needs no network, and `model_card.md`.

Both name the commands that repeat the run, option by option.
"""

import base64
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from shared import __version__
from shared.command import PROGRAM
from shared.jobs.job import SPLITS, Job
from shared.jobs.manifest import Manifest
from shared.jobs.paths import name_of_weights
from shared.specs.data import JobSpec
from shared.specs.options import words
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from trainer.network.efficientnet_lite import TEACHER, origin_of
from trainer.reporting.charts import class_panels, size_bars, training_panels
from trainer.reporting.figures import Figures
from trainer.reporting.gallery import page_marks
from trainer.reporting.handed_out import files_of_run
from trainer.reporting.job_facts import JobFacts
from trainer.reporting.plots import tile
from trainer.reporting.templates import environment
from trainer.tflite.gate import GateCheck
from trainer.tflite.layer_error import LayerError

_LAYERS_SHOWN: Final = 8
_KINDS_SHOWN: Final = 20
_CONFUSIONS_SHOWN: Final = 8
_COMMAND_CHARACTERS: Final = 100

# Fields of a request that only the store needs, or that the page shows elsewhere.
_NOT_ASKED: Final = {"schema_version", "run", "job", "kind", "dry"}

# Shown even at their defaults, because another version may have other defaults.
_ALWAYS_SHOWN: Final = ("image_size", "resize", "seed", "model", "max_minutes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Everything that the report and the card show.

    `metrics` are as in `metrics.json`; `figures` are for int8 on the measured split; `advice` and `warnings` are for a
    person; `exported` is as in `Release.notes`; `timings` are seconds per stage; `files` is what is handed out,
    relative to the run's folder.
    """

    spec: RunSpec
    manifest: Manifest
    facts: JobFacts
    metrics: Mapping[str, Mapping[str, Any]]
    checks: Sequence[GateCheck]
    layers: Sequence[LayerError]
    figures: Figures
    advice: Sequence[str]
    warnings: Sequence[str]
    exported: str
    timings: Mapping[str, float]
    measured_split: str
    gate_split: str
    score_split: str
    files: Sequence[str]


def render_report(summary: RunSummary) -> str:
    """The report as HTML with its pictures inside."""
    return environment(is_html=True).get_template("report.html.j2").render(**_context(summary))


def render_card(summary: RunSummary) -> str:
    """The model card in Markdown; its sections follow Mitchell et al., "Model Cards for Model Reporting" (2019)."""
    return environment(is_html=False).get_template("model_card.md.j2").render(**_context(summary))


def _context(summary: RunSummary) -> dict[str, Any]:
    manifest, spec, job = summary.manifest, summary.spec, summary.facts.job
    lint, figures = summary.facts.lint, summary.figures
    per_class = summary.metrics["int8"]["per_class"]
    return {
        "continued": None if spec.start is None else name_of_weights(spec.start),
        **{field.name: getattr(summary, field.name) for field in fields(summary)},
        "version": __version__,
        "origin": origin_of(TEACHER if spec.distil else spec.backbone),
        "thread_counts": list(summary.metrics["int8"]["latency_ms"]),
        "check_rows": check_rows(summary.checks, list(summary.metrics)),
        "handed_out": files_of_run(summary.files),
        "passed": all(check.is_ok for check in summary.checks),
        "layers": summary.layers[:_LAYERS_SHOWN],
        "score": figures.inputs.score,
        **shown_pictures(figures),
        "int8": summary.metrics["int8"],
        "classes": class_rows(figures, per_class, manifest.class_counts.get("train", {})),
        "matrix": matrix_rows(figures),
        "confusions": figures.confusions()[:_CONFUSIONS_SHOWN],
        "panels": class_panels(figures.curves, {label: row["ap50"] for label, row in per_class.items()}),
        "training": training_panels(figures.inputs.history),
        "sizes": size_bars(figures.train_px),
        "splits": {
            split: {"pictures": manifest.examples(split), "classes": manifest.class_counts.get(split, {})}
            for split in SPLITS
            if split in manifest.splits
        },
        "lint": None if lint is None else lint[:_KINDS_SHOWN],
        "lint_left_out": 0 if lint is None else len(lint[_KINDS_SHOWN:]),
        "dataset": None if job is None else job.archive or job.dataset,
        "asked_data": {} if job is None else _asked(job.spec.model_dump(mode="json")),
        "asked_training": _asked(spec.model_dump(mode="json", exclude={"augmentation"})),
        "asked_changes": spec.effective_augmentation(
            spec.photos_learned({split: manifest.examples(split) for split in manifest.splits})
        ).model_dump(mode="json"),
        "commands": [_folded(command) for command in reproduce_commands(spec, job)],
    }


def shown_pictures(figures: Figures) -> dict[str, Any]:
    """What a template needs for its galleries: `tiles` (JPEG in base64), `galleries`, `is_all_shown`."""
    return {
        "tiles": {at: base64.b64encode(tile(picture)).decode() for at, picture in figures.stored.items()},
        "galleries": _galleries(figures),
        "is_all_shown": _is_all_shown(figures),
    }


def class_rows(
    figures: Figures, per_class: Mapping[str, Mapping[str, Any]], learnt: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each class, worst first, classes without objects last: the figures of `metrics.json`, and counts.

    `found`, `missed`, `confused` and `made_up` are counted at the threshold of the pictures; `learnt` is the number of
    training objects by class.
    """
    rows, counts = [], figures.counts
    for index, label in enumerate(figures.inputs.labels):
        found, missed = int(counts[index, index]), int(counts[index, -1])
        there = int(counts[index].sum())
        judged = {"found": found, "missed": missed, "confused": there - found - missed}
        judged |= {"made_up": int(counts[-1, index]), "objects": there}
        rows.append({"label": label, "learnt": learnt.get(label, 0), **judged, **per_class[label]})
    return sorted(rows, key=lambda row: (row["ap50"] is None, row["ap50"], row["label"]))


def matrix_rows(figures: Figures) -> list[dict[str, Any]]:
    """The confusion matrix: for each true class, by seen class, the count, percent of the row, and if it is right."""
    names = [*figures.inputs.labels, "nothing"]
    return [
        {
            "label": label,
            "cells": [(count, round(100 * count / max(1, sum(counts))), at == row) for at, count in enumerate(counts)],
        }
        for row, (label, counts) in enumerate(zip(names, figures.counts.tolist(), strict=True))
    ]


def _is_all_shown(figures: Figures) -> bool:
    """Whether one gallery shows the whole split, so that others would only repeat its pictures."""
    return len(figures.chosen["even"]) == len(figures.judged)


def _galleries(figures: Figures) -> dict[str, list[dict[str, Any]]]:
    """The pictures to show, by gallery."""
    chosen = figures.chosen
    if _is_all_shown(figures):
        judged = figures.judged
        chosen = {"even": sorted(chosen["even"], key=lambda at: (judged[at].f1, -judged[at].mistakes, at))}
    return {name: [_pair(figures, at) for at in ids] for name, ids in chosen.items()}


def _pair(figures: Figures, image_id: int) -> dict[str, Any]:
    """One picture of a gallery: the truth beside what is seen."""
    judged, side_px = figures.judged[image_id], figures.inputs.side_px
    sides = {"annotated": page_marks(judged.there, side_px), "seen": page_marks(judged.seen, side_px)}
    return {"id": image_id, "file": figures.names[image_id], "judged": judged, "sides": sides}


def reproduce_commands(spec: RunSpec, job: Job | None) -> list[str]:
    """The commands that lead from the data set's folder to the same model; `STORE` stands for the store."""
    return [
        *([] if job is None else [submit_command(spec, job)]),
        f"{PROGRAM} export {spec.run} --store STORE",
        f"{PROGRAM} evaluate {spec.run} --store STORE",
        f"{PROGRAM} predict STORE/runs/{spec.run}/{spec.int8_file} PICTURES --out seen",
    ]


def submit_command(spec: RunSpec, job: Job) -> str:
    """The `submit` that asks for the same shards and the same run."""
    spec = spec.with_files_in("STORE")
    added = ["--run", spec.run] if spec.run != job.job else []
    asked = [
        PROGRAM,
        "submit",
        job.archive or job.dataset,
        "--job",
        job.job,
        *added,
        "--store",
        "STORE",
        "--local",
        "--wait",
    ]
    asked += words(job.spec, JobSpec, _ALWAYS_SHOWN)
    asked += words(spec, TrainingOptions, set(_ALWAYS_SHOWN) - {"seed"})  # the seed is already among the job's words
    return shlex.join(asked)


def _folded(command: str) -> str:
    """A command that is longer than a line, broken into several lines before options."""
    lines, *options = command.split(" --")
    for option in options:
        is_full = len(lines.rsplit("\n", 1)[-1]) + len(option) > _COMMAND_CHARACTERS
        lines += f" \\\n  --{option}" if is_full else f" --{option}"
    return lines


def _asked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that are worth showing."""
    return {name: value for name, value in fields.items() if name not in _NOT_ASKED and value not in (None, [], {})}


def check_rows(checks: Sequence[GateCheck], forms: Sequence[str]) -> dict[str, list[GateCheck | None]]:
    """The checks as a table: question -> one entry per form, None if the form was not checked for it.

    A check's name is `form: question`.
    """
    rows: dict[str, list[GateCheck | None]] = {}
    for check in checks:
        form, question = check.name.split(": ", 1)
        rows.setdefault(question, [None] * len(forms))[forms.index(form)] = check
    return rows
