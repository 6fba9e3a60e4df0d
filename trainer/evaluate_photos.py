"""An exported model and a folder of photos with VOC XML -> how good the model is on them, without a job or training.

The folder is read by the producer's and the workers' own commands into a store that is removed at the end, so that both
the reading rules and the pictures that the model sees are those of a job.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from shared import __version__
from shared.audit.same_name import learned_photos
from shared.errors import ExportError, OptionError, PipelineError
from shared.jobs.job import SPLITS, Job, Split
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.jobs.versioned import read_stored
from shared.model.description import ModelDescription
from shared.storage import Storage
from shared.text import class_name, counted
from trainer.data.examples import ShardPicture
from trainer.data.shard_pictures import pictures_of, truth_of
from trainer.evaluation.latency import latency_ms, timing
from trainer.evaluation.measure import detect_all, measure
from trainer.inference.detector import Detector
from trainer.reporting.figures import FigureInputs, Figures, make_figures
from trainer.reporting.report import class_rows, shown_pictures
from trainer.reporting.templates import environment

_JOB: Final = "evaluated"
# Settings that would hand the work to other processes, or notify others of it.
_NOT_OURS: Final = ("VOC_BROKER_URL", "VOC_NOTIFY_URL", "VOC_STORE", "VOC_DATA_ROOT")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotosEvaluation:
    """How good a model is on a folder.

    `row` is like a form's row in `metrics.json`: `map50`, `map`, intervals, `pictures`, `objects`, `per_class`,
    `bytes`, `median_ms`. `unknown` counts the objects of classes that the model does not know, `difficult` those that
    count neither way, both by class. `set_aside` counts photos that could not be read, `left_out` photos without XML or
    not in any list, `learned` photos that the model was trained on.
    """

    model: str
    folder: str
    description: ModelDescription
    row: dict[str, Any]
    unknown: Mapping[str, int]
    difficult: Mapping[str, int]
    set_aside: int
    left_out: int
    learned: int
    figures: Figures

    @property
    def remarks(self) -> list[str]:
        """What a person should know about the figures, one line each."""
        said = []
        if self.learned:
            photos = f"{self.learned:,} of {counted(len(self.figures.inputs.truth['images']), 'photo')}"
            said.append(f"the model has learned from {photos}: it looks better than it is")
        if self.unknown:
            classes = ", ".join(f"{name} {count:,}" for name, count in self.unknown.items())
            said.append(f"left out, as the model does not know their class: {classes} (--rename old=new renames)")
        unmeasured = [name for name, found in self.row["per_class"].items() if found["objects"] == 0]
        absent = [name for name in unmeasured if name not in self.difficult]
        if absent:
            said.append(f"the folder has no object of {', '.join(absent)}")
        uncounted = [f"{name} ({self.difficult[name]:,})" for name in unmeasured if name in self.difficult]
        if uncounted:
            said.append(f"all objects of these classes are marked difficult, so none counts: {', '.join(uncounted)}")
        if self.set_aside:
            said.append(f"{counted(self.set_aside, 'photo')} set aside; `voc2tflite lint` names each with its reason")
        if self.left_out:
            why = "without XML of its own, or in no list or split folder"
            said.append(f"{counted(self.left_out, 'photo')} not measured, {why}; `voc2tflite lint` names each")
        return said

    def as_json(self) -> dict[str, Any]:
        """The evaluation as JSON values, without the pictures."""
        facts = {"model": self.model, "folder": self.folder, "form": self.description.form}
        left = {"quarantined": self.set_aside, "left_out": self.left_out, "learned": self.learned}
        return {**facts, **self.row, "unknown_classes": dict(self.unknown), **left}

    def page(self) -> str:
        """The evaluation as an HTML page with a gallery, styled like the report."""
        return (
            environment(is_html=True)
            .get_template("evaluation.html.j2")
            .render(
                version=__version__,
                model=self.model,
                folder=self.folder,
                description=self.description,
                remarks=self.remarks,
                row=self.row,
                score=self.figures.inputs.score,
                classes=class_rows(self.figures, self.row["per_class"], {}),
                **shown_pictures(self.figures),
            )
        )


def evaluate_photos(  # long: a line for each argument
    model: Path | bytes,
    folder: str,
    *,
    shown: str,
    split: Split | None,
    options: Sequence[str],
    threads: int,
    timed_threads: Sequence[int] = (1,),
) -> PhotosEvaluation:
    """Measure a model on photos with VOC XML, in a folder, an archive or a bucket.

    Args:
        model: The `.tflite` or its bytes.
        folder: The photos, named as for `submit`.
        shown: How errors name the model.
        split: Only photos of this split; None: all.
        options: Options of `submit` that say how the folder is read.
        threads: CPU threads of the interpreter.
        timed_threads: The numbers of threads with which its milliseconds are measured.

    Raises:
        ExportError: It is not a model of this project, or knows none of the folder's classes.
        PipelineError: The folder cannot be read.
    """
    detector = Detector(model, threads, file=shown)
    with tempfile.TemporaryDirectory(prefix="voc-evaluate-") as store:
        storage = Storage(store)
        _read_photos(folder, detector.description, store, options)
        manifest = read_stored(Manifest, storage.read(JobPaths(_JOB).manifest), storage.url(JobPaths(_JOB).manifest))
        splits = [each for each in SPLITS if each in manifest.splits and split in (None, each)]
        if not any(manifest.examples(each) for each in splits):
            raise PipelineError(f"{folder}: it has no photo of {split}")
        truth, unknown = _truth(storage, manifest, splits, detector.labels, shown)

        stream = pictures_of(storage, manifest, None)

        def pictures() -> Iterator[ShardPicture]:
            return (picture for each in splits for picture in stream(each))

        figures = _figures(detector, truth, pictures, split or "all")
        cost = _cost(model, next(iter(pictures())), timed_threads)
        row = {**measure(truth, figures.inputs.detections).figures, **cost}
        set_aside = manifest.counters.get("quarantined", 0)
        job = _job(storage)
        learned = len(_learned(shown, storage, job) & {image["file_name"] for image in truth["images"]})
        left_out = job.counts["images"] - sum(map(manifest.examples, SPLITS)) - set_aside
    return PhotosEvaluation(
        model=shown,
        folder=folder,
        description=detector.description,
        row=row,
        unknown=unknown,
        difficult=Counter(detector.labels[row["category_id"] - 1] for row in truth["annotations"] if row["ignore"]),
        set_aside=set_aside,
        left_out=left_out,
        learned=learned,
        figures=figures,
    )


def _job(storage: Storage) -> Job:
    """The job that was made of the folder."""
    return read_stored(Job, storage.read(JobPaths(_JOB).job), storage.url(JobPaths(_JOB).job))


def _learned(model: str, storage: Storage, job: Job) -> set[str]:
    """The files of the folder's photos that a model was trained on; empty unless the model lies in its run's folder."""
    place = model if "://" in model else str(Path(model).resolve())
    store, *inside = place.rsplit("/", 3)
    if len(inside) != 3 or inside[0] != "runs":
        return set()
    return learned_photos(Storage(store), inside[1], (storage, job))


def _cost(model: Path | bytes, picture: ShardPicture, timed_threads: Sequence[int]) -> dict[str, Any]:
    """Size in bytes and milliseconds of a model, as in a form's row."""
    content = model if isinstance(model, bytes) else model.read_bytes()
    times = latency_ms({"model": content}, picture.rgb, threads=timed_threads)["model"]
    return {"bytes": len(content), **timing(times)}


def _figures(
    detector: Detector, truth: Mapping[str, Any], pictures: Callable[[], Iterable[ShardPicture]], split: str
) -> Figures:
    """What the model sees in the pictures, judged; keeps the pictures to show in memory."""
    inputs = FigureInputs(
        labels=detector.labels,
        truth=truth,
        train_truth=truth,
        detections=detect_all(detector.detect_batch, pictures()),
        pictures=pictures,
        history=(),
        score=detector.description.threshold,
        split=split,
        side_px=detector.description.image_size,
    )
    return make_figures(inputs)


def _read_photos(folder: str, description: ModelDescription, store: str, options: Sequence[str]) -> None:
    """Write the shards of a folder into `store`, with pictures of the size that the model takes.

    Raises:
        OptionError: An option is wrong.
        PipelineError: The folder cannot be read, or this installation has no producer or worker.
    """
    missing = [service for service in ("producer", "worker") if find_spec(service) is None]
    if missing:
        raise PipelineError(f"to read photos this needs {' and '.join(missing)}: run it where all of voc2tflite is")
    command = [sys.executable, "-m", "producer", "submit", "--job", _JOB, "--store", store, "--local", "--yes"]
    command += ["--no-train", "--image-size", str(description.image_size), "--resize", description.resize, *options]
    command += ["--", folder]
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    done = subprocess.run(  # noqa: S603 - our own command; a folder that begins with a dash is a folder
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
        kind = OptionError if done.returncode == 2 else PipelineError
        raise kind("\n".join(told) or f"{folder} cannot be read: {done.stderr.strip()[-300:]}")


def _truth(
    storage: Storage, manifest: Manifest, splits: Sequence[Split], known: Sequence[str], shown: str
) -> tuple[dict[str, Any], dict[str, int]]:
    """The COCO-form truth of all splits with the model's class ids, and the number of objects of other classes.

    Raises:
        ExportError: The model knows none of the folder's classes.
    """
    # A model of an older version may have accents that are not composed.
    ids = {class_name(name): at for at, name in enumerate(known, start=1)}
    if not ids.keys() & set(manifest.labels):
        raise ExportError(
            f"{shown}: it knows {', '.join(ids)}, and the folder has none of them but {', '.join(manifest.labels)}: "
            "where only names differ, --rename old=new reads the folder's as the model's"
        )
    parts, unknown = [truth_of(storage, manifest)(split) for split in splits], Counter[str]()
    annotations: list[dict[str, Any]] = []
    for row in (row for part in parts for row in part["annotations"]):
        name = manifest.labels[row["category_id"] - 1]
        if name in ids:
            annotations.append({**row, "id": len(annotations) + 1, "category_id": ids[name]})
        else:
            unknown[name] += 1
    categories = [{"id": at, "name": name} for name, at in ids.items()]
    images = [image for part in parts for image in part["images"]]
    return {"images": images, "annotations": annotations, "categories": categories}, dict(sorted(unknown.items()))
