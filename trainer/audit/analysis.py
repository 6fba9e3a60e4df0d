"""What the runs of an audit saw -> `findings.json`, `audit.csv`, `audit.html` and `proposals/` in its last run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from shared.audit.findings import AuditFinding, AuditFindings, PhotoBox, finding_id
from shared.errors import StorageError
from shared.jobs.identity import find_job
from shared.jobs.manifest import Manifest
from shared.jobs.paths import RunPaths
from shared.leasing.guard import Guard
from shared.model.file import MOST_MODEL_BYTES
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.text import counted
from trainer.audit.deal import deal, photos_of, torn_scenes, unlearned
from trainer.audit.fold_detections import every_picture, read_folds
from trainer.audit.label_errors import find_label_errors, found_share, named_share
from trainer.audit.page import MOST_SHOWN, render_page
from trainer.audit.photo_frames import PhotoFrame, photo_frames
from trainer.audit.photos import LabelFinding
from trainer.audit.proposals import proposals
from trainer.data.shard_cache import ShardCache
from trainer.data.shard_pictures import Pictures, pictures_of
from trainer.detections import DetectionsById
from trainer.evaluation.measure import detect_all
from trainer.inference.detector import Detector

QUICK_REMARK: Final = (
    "quick: the model has learnt most of these very labels and agrees with wrong ones too, so folds find more"
)

# Models that find a smaller share of the marked boxes are not good enough to doubt the other boxes.
LEAST_FOUND: Final = 0.5
# Models that agree with a smaller share of the classes cannot tell them apart: nobody labels that many wrongly.
LEAST_NAMED: Final = 0.7
_LONGER: Final = "train longer (--epochs, --max-minutes) or label more photos"
FOUND_TOO_FEW: Final = f"too few to doubt labels: {_LONGER}"
NAMED_TOO_FEW: Final = f"too few to doubt classes: {_LONGER}"

# How many files a remark names; more would help nobody.
_NAMED: Final = 3


def audit(
    request: RunSpec, manifest: Manifest, *, storage: Storage, guard: Guard, shards: ShardCache | None
) -> dict[str, Any]:
    """Compare what the audited runs saw with the labels, and write the findings into the run.

    Returns:
        What `run.json` says about it: `findings` (their number by kind), `photos`, `warnings`.

    Raises:
        TrainingError: The list of the photos' sizes is absent, or a photo was seen by no fold.
        StorageError: The detections of a fold, or the model, are absent.
    """
    guard.advance(phase="audit")
    pictures = pictures_of(storage, manifest, shards)
    seen = _seen(request, manifest, storage, guard, pictures)
    frames, left_out = photo_frames(manifest, storage, seen)
    guard.advance(phase="audit")
    found = find_label_errors(frames, manifest.labels)
    found, remarks = of_learned_classes(found, frames, request, manifest, storage)
    if frames and (share := found_share(frames)) < LEAST_FOUND:
        remarks.append(f"the models found {share:.0%} of the marked boxes, {FOUND_TOO_FEW}")
    if (share := named_share(frames)) < LEAST_NAMED:
        remarks.append(f"of the boxes that they found, the models call {share:.0%} as marked, {NAMED_TOO_FEW}")
    if left_out:
        why = "not audited, gone from the folder or replaced since the submit"
        remarks.insert(0, f"{counted(len(left_out), 'photo')} {why}: {_named(left_out)}")
    result = AuditFindings(
        run=request.run,
        job=request.job,
        incarnation=request.incarnation,
        folds=request.folds,
        photos=len(frames),
        boxes=sum(len(frame.marked.class_ids) for frame in frames),
        remarks=tuple(remarks),
        findings=ranked(found, frames, manifest.labels),
    )
    _write(result, frames, manifest, pictures, storage=storage, guard=guard)
    kinds = Counter(finding.kind for finding in result.findings)
    return {"findings": dict(sorted(kinds.items())), "photos": result.photos, "warnings": list(remarks)}


def _seen(request: RunSpec, manifest: Manifest, storage: Storage, guard: Guard, pictures: Pictures) -> DetectionsById:
    """What the folds saw or, in a quick audit, what the model of the one finished run sees in all photos."""
    count = sum(shard.examples for shards in manifest.splits.values() for shard in shards)
    if request.folds:
        return read_folds(storage, request, count)
    key = f"{RunPaths(request.audits[0]).root}/model_float32.tflite"
    if not storage.exists(key):
        raise StorageError(f"{storage.url(key)}: absent")
    detector = Detector(storage.read_range(key, 0, MOST_MODEL_BYTES + 1), file=storage.url(key))

    def advance(pictures: int = 0) -> None:
        guard.advance(phase="detect", step=pictures, steps=count)

    advance()
    return detect_all(detector.detect_batch, every_picture(pictures, manifest), advance=advance)


def of_learned_classes(
    found: Sequence[LabelFinding], frames: Sequence[PhotoFrame], request: RunSpec, manifest: Manifest, storage: Storage
) -> tuple[list[LabelFinding], list[str]]:
    """The findings except those on objects of a class that their fold never saw, and a remark on each such class."""
    if not request.folds:
        return list(found), [QUICK_REMARK]
    photos = photos_of(storage, manifest)
    dealt = deal(photos, request.folds)
    strange = {part: unlearned(photos, dealt, part) for part in set(dealt.values())}
    unjudged = {(photo.file_name, at) for photo in photos for at in photo.classes & strange[dealt[photo.image_id]]}
    remarks = []
    if torn := torn_scenes(photos, dealt):
        remarks.append(
            f"photos of one scene ({_named(torn)}) are in several folds, as there are fewer scenes than folds: "
            "models that know a scene judged it, and find less"
        )
    for class_id in sorted({at for _, at in unjudged}):
        files = sorted(file for file, at in unjudged if at == class_id)
        remarks.append(
            f"class {manifest.labels[class_id - 1]!r} is on photos of one fold only ({_named(files)}): no model could "
            "learn it without them, so its boxes are not audited"
        )
    marked = {frame.file_name: frame.marked.class_ids for frame in frames}

    def is_judged(each: LabelFinding) -> bool:
        if each.object_index is None:
            return True
        return (each.file_name, int(marked[each.file_name][each.object_index])) not in unjudged

    return list(filter(is_judged, found)), remarks


def ranked(
    found: Sequence[LabelFinding], frames: Sequence[PhotoFrame], labels: Sequence[str]
) -> tuple[AuditFinding, ...]:
    """Findings in the form in which they are written, surest first."""
    marked = {frame.file_name: frame.marked.class_ids for frame in frames}
    rows = [_finding(each, marked[each.file_name].tolist(), labels) for each in found]
    return tuple(sorted(rows, key=lambda row: (-row.score, row.file, row.id)))


def _finding(found: LabelFinding, class_ids: Sequence[int], labels: Sequence[str]) -> AuditFinding:
    is_marked = found.object_index is not None
    name = labels[class_ids[found.object_index] - 1] if found.object_index is not None else ""
    proposed = "" if found.proposed_class_id is None else labels[found.proposed_class_id - 1]
    box = _rounded(found.box) if is_marked else None
    proposed_box = _rounded(found.proposed_box)
    if proposed_box is not None:
        proposed = proposed or name
    number = found.object_index + 1 if found.object_index is not None else None
    facts = (found.kind, found.file_name, number, name, box, proposed, proposed_box)
    return AuditFinding(
        id=finding_id(facts),
        kind=found.kind,
        file=found.file_name,
        object=number,
        score=round(found.score, 4),
        class_name=name,
        box=box,
        proposed_class=proposed if proposed_box is not None else "",
        proposed_box=proposed_box,
        reason=found.reason,
    )


def _rounded(box: Sequence[float] | None) -> PhotoBox | None:
    """A box rounded to hundredths of a pixel: more is noise, and would change the ids of the same findings."""
    if box is None:
        return None
    xmin, ymin, xmax, ymax = (round(float(corner), 2) for corner in box)
    return xmin, ymin, xmax, ymax


def _write(
    result: AuditFindings,
    frames: Sequence[PhotoFrame],
    manifest: Manifest,
    pictures: Pictures,
    *,
    storage: Storage,
    guard: Guard,
) -> None:
    """Write the files of an audit; they count once `run.json` is there."""
    paths, by_name = RunPaths(result.run), {frame.file_name: frame for frame in frames}
    shown = result.findings[:MOST_SHOWN]
    wanted = {by_name[finding.file].image_id for finding in shown}
    stored = {picture.file_name: picture for picture in every_picture(pictures, manifest, wanted)}
    job = find_job(storage, result.job)
    folder = "" if job is None else job.dataset
    files = {f"{paths.root}/proposals/{name}": xml for name, xml in proposals(result, by_name, manifest, folder)}
    files[paths.audit_table] = result.to_csv().encode()
    files[paths.audit_page] = render_page(result, shown, by_name, stored, manifest.labels).encode()
    files[paths.findings] = result.to_json().encode()
    guard.before_publish()
    storage.remove_tree(f"{paths.root}/proposals")  # they may be of an attempt with other photos
    for key, content in files.items():
        guard.require_wanted()
        storage.write(key, content)


def _named(files: Sequence[str]) -> str:
    rest = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(files[:_NAMED]) + rest
