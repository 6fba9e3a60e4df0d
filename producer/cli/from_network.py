"""The network that `--from` names -> a file in the store, and the options that follow from the network."""

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from producer.cli.keras_file import MOST_KERAS_BYTES, TrainedDetector, as_detector, read_network
from producer.cli.weights import kept, read_bounded
from shared.command import hint
from shared.errors import OptionError
from shared.jobs.identity import is_name
from shared.jobs.labels import read_labels_txt
from shared.jobs.paths import RunPaths, labels_of
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from shared.text import counted

_NETWORK: Final = "model.keras"
_MOST_NOTE_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNetwork:
    """A trained network that a run is to go on from: its file, its name, its classes.

    `resize` is how pictures were fitted for it; None if its run no longer says so.
    """

    content: bytes
    name: str
    detector: TrainedDetector
    labels: tuple[str, ...]
    resize: str | None


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder, on disk or in a bucket, with a trained network in it."""

    storage: Storage
    file: str

    def beside(self, name: str) -> bytes | None:
        """The content of the small file `name` in this folder; None if there is none."""
        return self.storage.read_range(name, 0, _MOST_NOTE_BYTES) if self.storage.exists(name) else None


def with_start_network(
    typed: tuple[JobSpec, TrainingOptions], is_typed: Collection[str], storage: Storage
) -> tuple[JobSpec, TrainingOptions]:
    """The options, with those that the network named by `--from` decides; its file is copied into the store.

    Args:
        typed: What a person asked for.
        is_typed: The fields that were typed.
        storage: The store where the job will be.

    Raises:
        OptionError: There is no such network, it is not one of ours, or an option asks for a different one.
    """
    spec, training = typed
    if training.start is None:
        return typed
    shown = f"--from {training.start}"
    trained = _read(_found(training.start, storage, shown), shown)
    detector = trained.detector
    of_data = {"image_size": detector.image_size} | ({"resize": trained.resize} if trained.resize else {})
    of_training = {"backbone": detector.backbone, "model": detector.model}
    for asked, fixed in ((spec, of_data), (training, of_training)):
        for field, value in fixed.items():
            if field in is_typed and getattr(asked, field) not in (value, "auto"):
                option = f"--{field.replace('_', '-')}"
                raise OptionError(
                    f"{shown} goes on with its own network, {option} {value}; found {option} {getattr(asked, field)}: "
                    "leave it out, or train from nothing without --from"
                )
    return _with(spec, of_data), _with(training, of_training | {"start": _kept_with_labels(trained, storage)})


def _kept_with_labels(trained: StartNetwork, storage: Storage) -> str:
    """The key of the network in the store, with its class names beside it.

    The same network with other class names, after its list was corrected, gets another file: a run may need the first.
    """
    labels = "".join(f"{label}\n" for label in trained.labels).encode()
    key = kept(trained.content, f"{trained.name}.keras", storage)
    if not storage.create(labels_of(key), labels) and storage.read(labels_of(key)) != labels:
        key = kept(trained.content, f"{trained.name}-{hashlib.sha256(labels).hexdigest()[:8]}.keras", storage)
    storage.write(labels_of(key), labels)  # even if they are there already, to make them new to `prune`, as in `kept`
    return key


def _with(options: Any, fields: dict[str, Any]) -> Any:
    """`options` with `fields` replaced, validated again.

    Raises:
        OptionError: The values do not fit together.
    """
    from pydantic import ValidationError

    try:
        return type(options).model_validate(options.model_dump() | fields)
    except ValidationError as error:
        raise OptionError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error


def _found(start: str, storage: Storage, shown: str) -> _Folder:
    """Where the network is: in a run of the store, in a folder, or a file; the latter two also in a bucket.

    Raises:
        OptionError: There is none.
    """
    if is_name(start) and storage.exists(RunPaths(start).request):
        if not storage.exists(f"{RunPaths(start).root}/{_NETWORK}"):
            looked = hint("status", start, store=storage)
            raise OptionError(f"{shown}: the run has no {_NETWORK} yet, it is not trained to its end; `{looked}`")
        return _Folder(Storage(storage.url(RunPaths(start).root)), _NETWORK)
    if "://" in start:
        place = start if start.endswith(".keras") else f"{start.rstrip('/')}/{_NETWORK}"
        folder, _, file = place.rpartition("/")
        if Storage(folder).exists(file):
            return _Folder(Storage(folder), file)
    path = Path(start).expanduser()
    path = path / _NETWORK if path.is_dir() else path
    if path.is_file():
        return _Folder(Storage(str(path.absolute().parent)), path.name)
    runs = ", ".join(storage.list_names("runs")) or "none"
    raise OptionError(f"{shown}: expected a run of the store (there are: {runs}), its folder or its {_NETWORK}")


def _read(place: _Folder, shown: str) -> StartNetwork:
    """The network in a file, and its classes from the list beside it.

    Raises:
        OptionError: The network is not one of ours, or the list is missing or does not fit.
    """
    if place.storage.is_local:
        content = read_bounded(place.storage.local_path(place.file), shown)
    else:
        content = place.storage.read_range(place.file, 0, MOST_KERAS_BYTES + 1)
    detector = as_detector(read_network(content, shown), shown)
    lists = [labels_of(place.file), "labels.txt"]
    found = next((text for name in lists if (text := place.beside(name)) is not None), None)
    try:
        labels = () if found is None else read_labels_txt(found)
    except ValueError as error:
        raise OptionError(f"{shown}: the class names beside it: {error}; expected one a line") from error
    if len(labels) != detector.classes:
        there = "no such file" if found is None else counted(len(labels), "name")
        raise OptionError(
            f"{shown}: expected its {counted(detector.classes, 'class name')} in labels.txt beside it, found {there}"
        )
    resize = _resize(place.beside("run.json"))
    return StartNetwork(content=content, name=_name(place), detector=detector, labels=labels, resize=resize)


def _resize(note: bytes | None) -> str | None:
    """How a run's pictures were fitted, from its `run.json`; None if that does not say."""
    try:
        said = json.loads(note or b"{}")
    except ValueError:
        return None
    resize = said.get("resize") if isinstance(said, dict) else None
    return resize if resize in ("stretch", "letterbox") else None


def _name(place: _Folder) -> str:
    """The name of the network in the store: that of its folder (run) if the file is `model.keras`, else the file's."""
    stem = place.file.removesuffix(".keras")
    stem = re.sub(r"^[0-9a-f]{16}-", "", stem)  # without the digest that a store puts before the name
    if place.file == _NETWORK:
        stem = place.storage.root.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")[:64] or "model"
