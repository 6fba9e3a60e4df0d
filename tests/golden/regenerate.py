"""Make the golden pairs and what they must become: `python -m tests.golden.regenerate`.

`voc/` holds twelve tiny pairs in VOC layout with lists, `quirks/` one for each quirk of real folders. `expected.json`
and `quirks.json` have the features of their records, the findings, the counters and, for the OpenCV that wrote them,
the digest of each shard. `formats.json` has one digest over all of them for each SHARD_FORMAT there was: other bytes
need another number. Run it only where a change of the bytes is wanted, and say why in CHANGELOG.md.
"""

import argparse
import hashlib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import cv2

from producer.dataset.lint import LintedFolder, lint_folder
from producer.terminal.lint_page import lint_report
from shared.jobs.job import SPLITS, Job, ShardTask, Split, SplitPlan
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.jobs.schema import SHARD_FORMAT
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.specs.frozen import canonical_json
from shared.storage import Storage
from tests.golden.readable import COLUMNS, dump, readable_findings, readable_record
from tests.path_pairs import path_pair
from tests.quirks.quirks import synthesize_quirks
from worker.record.tfrecord import read_records
from worker.shard import write_shard
from worker.synthetic.shapes import Scene, Shape, draw_scene, paint, scene_xml

GOLDEN: Final = Path(__file__).parent
VOC: Final = GOLDEN / "voc"
EXPECTED: Final = GOLDEN / "expected.json"
QUIRKS: Final = GOLDEN / "quirks"
EXPECTED_QUIRKS: Final = GOLDEN / "quirks.json"
FORMATS: Final = GOLDEN / "formats.json"

# Where `expected_of` and `expected_quirks` keep the digests of what jobs lend each other.
BYTES_KEYS: Final = ("sha256", "annotations_sha256")

LONG_SIDE_PX: Final = 160
LABELS: Final = ("circle", "cross", "triangle")
SPECS: Final = {
    "stretch": JobSpec(image_size=64),
    "letterbox": JobSpec(image_size=96, resize="letterbox"),
}
# Number 7 shows no object; 1, 5 and 9 stand upright.
MEMBERS: Final[dict[Split, tuple[int, ...]]] = {"train": (0, 1, 2, 3, 5, 6, 7, 8), "val": (4, 9), "test": (10, 11)}


def write_voc(folder: Path) -> None:
    """Write the twelve pairs, scenes of the synthetic set made small."""
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for split, numbers in MEMBERS.items():
        for number in numbers:
            scene = draw_scene(number, 0)
            scale = LONG_SIDE_PX / max(scene.width, scene.height)
            small = _shrink(scene, scale)
            pixels = cv2.resize(paint(scene, number, 0), (small.width, small.height), interpolation=cv2.INTER_AREA)
            written, jpeg = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 80])
            assert written
            (folder / "JPEGImages" / f"{small.stem}.jpg").write_bytes(jpeg.tobytes())
            (folder / "Annotations" / f"{small.stem}.xml").write_text(scene_xml(small), encoding="utf-8")
        stems = [f"{draw_scene(number, 0).stem}\n" for number in numbers]
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(stems), encoding="utf-8")


def _shrink(scene: Scene, scale: float) -> Scene:
    shapes = tuple(
        Shape(
            name=shape.name,
            outline=shape.outline * scale,
            box=tuple(round(corner * scale) for corner in shape.box),  # type: ignore[arg-type]  # a tuple of four
            truncated=shape.truncated,
        )
        for shape in scene.shapes
    )
    width, height = round(scene.width * scale), round(scene.height * scale)
    return Scene(stem=scene.stem, width=width, height=height, shapes=shapes)


def golden_job(spec: JobSpec) -> tuple[Job, list[ShardTask]]:
    """The job over `voc/` with one shard a split, as the plan would cut it."""
    tasks, source_id = [], 0
    for split in SPLITS:
        pairs = []
        for name in (VOC / "ImageSets" / "Main" / f"{split}.txt").read_text(encoding="utf-8").split():
            source_id += 1
            pairs.append(path_pair(VOC, f"JPEGImages/{name}.jpg", f"Annotations/{name}.xml", source_id=source_id))
        tasks.append(ShardTask(job="golden", split=split, index=0, count=1, pairs=tuple(pairs)))
    splits = {task.split: SplitPlan(pairs=len(task.pairs), digests=(task.digest(),)) for task in tasks}
    job = Job(
        job="golden",
        dataset="voc",
        folder="voc",
        spec=spec,
        run=None,
        labels=LABELS,
        splits=splits,
        request_digest="0" * 64,
    )
    return job, tasks


def write_shards(
    job: Job, tasks: Iterable[ShardTask], store: Path
) -> tuple[dict[str, ShardReceipt], dict[str, list[dict[str, Any]]]]:
    """Receipts and readable records of each shard of a golden job."""
    storage = Storage(str(store))
    receipts, records = {}, {}
    for task in tasks:
        receipts[task.shard] = write_shard(task, job, storage=storage, data_root=GOLDEN, guard=Unguarded(), attempt=1)
        content = storage.read(JobPaths(job.job).tfrecord(task.shard))
        records[task.shard] = [readable_record(record) for record in read_records(content, file=task.shard)]
    return receipts, records


def opencv_build() -> str:
    """The release and the instruction sets that it runs on: both may change how a pixel is rounded."""
    return f"{cv2.__version__} {cv2.getCPUFeaturesLine()}"


def expected_of(spec: JobSpec) -> dict[str, Any]:
    """What `expected.json` holds of one specification."""
    with tempfile.TemporaryDirectory() as store:
        receipts, records = write_shards(*golden_job(spec), Path(store))
    return {
        "sha256": {shard: receipt.sha256 for shard, receipt in receipts.items()},
        "annotations_sha256": {shard: receipt.annotations_sha256 for shard, receipt in receipts.items()},
        "counters": {shard: receipt.counters for shard, receipt in receipts.items()},
        "records": records,
    }


def quirk_job(linted: LintedFolder) -> tuple[Job, ShardTask]:
    """All pairs of `quirks/` in one shard, numbered in the order of their paths."""
    pairs = tuple(
        path_pair(QUIRKS, image, annotation, source_id=number)
        for number, (image, annotation) in enumerate(linted.pairs, start=1)
    )
    task = ShardTask(job="quirks", split="train", index=0, count=1, pairs=pairs)
    job = Job(
        job="quirks",
        dataset="quirks",
        folder="quirks",
        spec=linted.spec,
        run=None,
        labels=linted.labels.names,
        splits={"train": SplitPlan(pairs=len(pairs), digests=(task.digest(),))},
        request_digest="0" * 64,
    )
    return job, task


def expected_quirks() -> dict[str, Any]:
    """What `quirks.json` holds: what lint says of `quirks/`, and what a worker makes of each pair, by its stem."""
    linted = lint_folder(QUIRKS, spec=JobSpec(image_size=64))
    job, task = quirk_job(linted)
    with tempfile.TemporaryDirectory() as store:
        receipts, records = write_shards(job, [task], Path(store))
    receipt = receipts[task.shard]
    by_image = {record["image/filename"]: record for record in records[task.shard]}
    pairs = {}
    for pair in task.pairs:
        found = [finding for finding in receipt.findings if finding.file in (pair.image, pair.annotation)]
        pairs[Path(pair.image).stem] = {"findings": readable_findings(found), "record": by_image.get(pair.image)}
    return {
        "columns": list(COLUMNS),
        "counters": {
            "written": receipt.written,
            "quarantined": receipt.quarantined,
            "background": receipt.background,
            "objects_read": receipt.objects_read,
            "objects_written": receipt.objects_written,
            **receipt.counters,
        },
        "lint": {
            "summary": lint_report(linted).summary(),
            "counts": linted.counts,
            "findings": readable_findings(linted.findings),
        },
        "pairs": pairs,
        "sha256": receipt.sha256,
        "annotations_sha256": receipt.annotations_sha256,
    }


def bytes_digest(expected: dict[str, Any], quirks: dict[str, Any]) -> str:
    """One digest over those of all golden shards and of their annotation files."""
    parts = [part[key] for part in (*(expected[name] for name in SPECS), quirks) for key in BYTES_KEYS]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def pinned_formats() -> dict[str, str]:
    """`bytes_digest` of each shard format."""
    formats: dict[str, str] = json.loads(FORMATS.read_text(encoding="utf-8"))
    return formats


def pinned(digest: str, shard_format: int) -> dict[str, str]:
    """`pinned_formats` with that of `shard_format`, which may be new.

    Raises:
        SystemExit: It has other bytes already.
    """
    formats = {str(shard_format): digest} | pinned_formats()
    if formats[str(shard_format)] != digest:
        raise SystemExit(
            f"the golden shards have other bytes than those of shard format {shard_format}: "
            "raise SHARD_FORMAT in shared/jobs/schema.py, or jobs will lend each other shards that differ"
        )
    return formats


def main() -> None:
    """Write pairs and expectations anew; asked for help, only say so."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write_voc(VOC)
    synthesize_quirks(QUIRKS)
    expected: dict[str, Any] = {name: expected_of(spec) for name, spec in SPECS.items()}
    quirks = expected_quirks()
    formats = pinned(bytes_digest(expected, quirks), SHARD_FORMAT)
    FORMATS.write_text(json.dumps(formats, indent=1) + "\n", encoding="utf-8")
    facts = {"opencv": opencv_build(), "shard_format": SHARD_FORMAT}
    for path, content in ((EXPECTED, expected), (EXPECTED_QUIRKS, quirks)):
        path.write_text(dump({**facts, **content}) + "\n", encoding="utf-8")
        print(f"{path.name}: {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
