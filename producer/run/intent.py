"""`StartOptions`, how a command runs a job; and the text on what it is about to do, shown before it does it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from redis.exceptions import RedisError
from rich.console import Console

from producer.dataset.lint import LintedFolder
from producer.jobs.submit import Request
from producer.run.learned_before import learned_text
from producer.settings import ProducerSettings
from producer.state.runs import run_asked
from shared.audit.same_name import splits_of
from shared.command import hint
from shared.jobs.job import Job
from shared.jobs.labels import ClassChange, read_labels_txt
from shared.jobs.paths import labels_of, name_of_weights
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.specs.run import RunSpec
from shared.specs.training import CONTINUED_RATE, CONTINUED_STEPS, FEWEST_STEPS, TrainingOptions
from shared.storage import DataFolder, Storage, data_folder
from shared.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """How a job is to be run: `local` with our own broker, `workers` and trainer; `wait` for its end.

    `is_local_typed`: a person typed `--local`; otherwise `local` only means that no broker is set. `confirm` asks the
    person whether to go on if that may be a surprise, and raises if not; None: nobody is asked.
    """

    settings: ProducerSettings
    local: bool
    wait: bool
    workers: int
    console: Console
    is_local_typed: bool = True
    confirm: Callable[[], None] | None = None

    def data_root(self, dataset: DataFolder) -> DataFolder:
        """The folder below which the workers find the pictures of `dataset`."""
        return dataset if self.local else data_folder(self.settings.data_root)


def say_intent(work: str, options: StartOptions, *, is_known: bool, with_trainer: bool) -> None:
    """Print what is about to be done, and where; if the job is new and runs here only because no broker is set, ask."""
    place = _place_text(options, is_known=is_known, with_trainer=with_trainer)
    options.console.print(f"{work}\n{place}", highlight=False, soft_wrap=True)
    if options.local and not options.is_local_typed and not is_known and options.confirm is not None:
        options.confirm()


def job_intent(request: Request, linted: LintedFolder, storage: Storage) -> str:
    """What is to be made of a folder: from how many photos and classes, and how long training may take."""
    photos = counted(sum(split is not None for split in linted.splits), "photo")
    classes = counted(len(linted.labels.names), "class", "classes")
    choice = choice_text(request.run, linted.counts, run_asked(storage, request.job, request.run_name))
    splits = {image: split for (image, _), split in zip(linted.pairs, linted.splits, strict=True)}
    start = start_text(request.run, linted.labels.names, storage) + learned_text(request.run, splits, storage)
    return f"job {request.job}: {photos} with {classes} → shards{_training_text(request.run)}{choice}{start}"


def run_intent(run: str, job: Job, training: TrainingOptions, storage: Storage) -> str:
    """What a further run makes from a job's shards."""
    photos = counted(sum(plan.pairs for plan in job.splits.values()), "photo")
    classes = counted(len(job.labels), "class", "classes")
    choice = choice_text(training, job.counts, run_asked(storage, job.job, run))
    start = start_text(training, job.labels, storage)
    start += learned_text(training, splits_of(storage, job), storage) if training.start else ""
    made = f"{_training_text(training)}{choice}{start}"
    return f"run {run}: the shards of job {job.job}, {photos} with {classes}{made}"


def choice_text(typed: TrainingOptions | None, counts: Mapping[str, int], known: RunSpec | None) -> str:
    """A further line on what `--backbone auto` chooses, or what a published backbone begins with; "" if not needed.

    Args:
        typed: What a person asked for.
        counts: The job's counts: photos by split, and `objects_kept`.
        known: The run of this name, if it exists already.
    """
    if typed is None or known is not None:
        return ""
    if typed.backbone.startswith("mobilenet") and typed.weights == "none" and typed.start is None:
        return f"\n{typed.backbone} begins with random weights; `--weights imagenet` downloads ImageNet's"
    if typed.distil:
        return "\nfirst learns to see as EfficientNet-Lite0 does, in at most half of the time (--distil)"
    if typed.backbone != "auto":
        return ""
    photos = counted(typed.photos_learned(counts), "training photo")
    if typed.with_backbone(counts, known).backbone == "conv":
        usual = typed.model_copy(update={"model": "small", "quantize": "ptq"})
        if usual.with_backbone(counts, known).backbone == "conv":
            return _from_nothing(photos) if typed == usual and typed.photos_learned(counts) else ""
        asked = [f"--model {typed.model}"] * (typed.model != "small") + ["--quantize qat"] * (typed.quantize == "qat")
        return (
            f"\nstarts with random weights because of {' and '.join(asked)}; without that, {photos} would start from "
            "EfficientNet-Lite0, pretrained on ImageNet, which is usually more accurate"
        )
    return (
        f"\nstarts from EfficientNet-Lite0, pretrained on ImageNet, because there are only {photos}; `--backbone conv` "
        "starts with random weights, and its model is 3 times as fast on the device"
    )


def _from_nothing(photos: str) -> str:
    return (
        f"\nstarts with random weights, because {photos} and their objects are enough for that; "
        "`--backbone efficientnet_lite0` starts from ImageNet's weights, and its model is 3 times as slow on the device"
    )


def start_text(typed: TrainingOptions | None, labels: Sequence[str], storage: Storage) -> str:
    """A further line on the network that a run goes on from, and what happens to its classes; "" if it is new."""
    if typed is None or typed.start is None:
        return ""
    change = ClassChange.between(read_labels_txt(storage.read(labels_of(typed.start))), labels)
    classes = [f"{what} {', '.join(names)}" for what, names in (("keeps", change.kept), ("new:", change.new)) if names]
    classes += [f"left out: {', '.join(change.gone)}"] if change.gone else []
    shares = [] if typed.epochs else [f"{CONTINUED_STEPS:.0%} of the steps (at least {FEWEST_STEPS})"]
    shares += [] if typed.learning_rate else [f"{CONTINUED_RATE:.0%} of the learning rate"]
    usual = f" with {' and '.join(shares)} of a new training" if shares else ""
    network = f"{typed.model}, {typed.backbone}"
    return f"\ngoes on from {name_of_weights(typed.start)} ({network}){usual}; {'; '.join(classes)}"


def _training_text(run: TrainingOptions | None) -> str:
    if run is None:
        return ", no training"
    epochs = "some epochs" if run.epochs is None else counted(run.epochs, "epoch")
    bound = epochs if run.max_minutes is None else f"up to {run.max_minutes:g} min"
    return f" → training of {run.model}, {bound}"


def _place_text(options: StartOptions, *, is_known: bool, with_trainer: bool) -> str:
    does = "goes on" if is_known else "runs"
    if options.local:
        reason = " (--local)" if options.is_local_typed else ", because no broker is set (VOC_BROKER_URL)"
        return f"it {does} here, on this machine{reason}"
    alive = _alive_text(Ledger(connect(options.settings.broker())), with_trainer=with_trainer)
    return f"it is handed to the broker at {options.settings.broker_place()}: {alive}"


def _alive_text(ledger: Ledger, *, with_trainer: bool) -> str:
    try:
        workers, trainers = (ledger.slots(kind) for kind in ("worker", "trainer"))
        served = "" if ledger.is_led() else ", no `serve`"
    except RedisError:
        return f"it cannot be reached now (`{hint('doctor')}`)"
    trainer = f", {counted(trainers, 'trainer')}" if with_trainer else ""
    return f"{counted(workers, 'worker process', 'worker processes')}{trainer}{served} there"
