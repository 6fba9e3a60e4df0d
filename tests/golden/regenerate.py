"""Make the golden pairs and what they must become: `python -m tests.golden.regenerate`.

`voc/` holds twelve tiny pairs in VOC layout with lists; `expected.json` the features of their records and, for the
OpenCV that wrote it, the digest of each shard. Run it only where a change of the bytes is wanted, and say why in
CHANGELOG.md.
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from shared.guard import Unguarded
from shared.job import SPLITS, Job, JobSpec, PathPair, ShardTask, Split, SplitPlan
from shared.manifest import JobPaths, ShardReceipt
from shared.storage import Storage
from worker.example import parse_example
from worker.shard import write_shard
from worker.synthetic import Scene, Shape, draw_scene, paint, scene_xml
from worker.tfrecord import read_records

GOLDEN: Final = Path(__file__).parent
VOC: Final = GOLDEN / "voc"
EXPECTED: Final = GOLDEN / "expected.json"

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
        for stem in (VOC / "ImageSets" / "Main" / f"{split}.txt").read_text(encoding="utf-8").split():
            source_id += 1
            pairs.append(
                PathPair(
                    image=f"JPEGImages/{stem}.jpg",
                    annotation=f"Annotations/{stem}.xml",
                    source_id=source_id,
                    fingerprint="0" * 16,
                )
            )
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


def write_shards(spec: JobSpec, store: Path) -> tuple[dict[str, ShardReceipt], dict[str, list[dict[str, Any]]]]:
    """Receipts and records (features by key, pictures as shape and mean colour) of each shard of the golden job."""
    job, tasks = golden_job(spec)
    storage = Storage(str(store))
    receipts, records = {}, {}
    for task in tasks:
        receipts[task.shard] = write_shard(task, job, storage=storage, data_root=GOLDEN, guard=Unguarded(), attempt=1)
        content = storage.read(JobPaths(job.job).tfrecord(task.shard))
        records[task.shard] = [_readable(record) for record in read_records(content, file=task.shard)]
    return receipts, records


def _readable(record: bytes) -> dict[str, Any]:
    features: dict[str, Any] = {
        key: [value.decode() if isinstance(value, bytes) else value for value in values]
        for key, values in parse_example(record).items()
        if key not in ("image/encoded", "image/key/sha256")
    }
    encoded = parse_example(record)["image/encoded"][0]
    assert isinstance(encoded, bytes)
    pixels = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    features["picture"] = {"shape": list(pixels.shape), "mean": [round(float(mean), 1) for mean in pixels.mean((0, 1))]}
    return features


def opencv_build() -> str:
    """The release and the instruction sets that it runs on: both may change how a pixel is rounded."""
    return f"{cv2.__version__} {cv2.getCPUFeaturesLine()}"


def expected_of(spec: JobSpec) -> dict[str, Any]:
    """What `expected.json` holds of one specification."""
    with tempfile.TemporaryDirectory() as store:
        receipts, records = write_shards(spec, Path(store))
    return {
        "sha256": {shard: receipt.sha256 for shard, receipt in receipts.items()},
        "counters": {shard: receipt.counters for shard, receipt in receipts.items()},
        "records": records,
    }


if __name__ == "__main__":
    write_voc(VOC)
    expected = {"opencv": opencv_build()} | {name: expected_of(spec) for name, spec in SPECS.items()}
    EXPECTED.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{EXPECTED}: {hashlib.sha256(EXPECTED.read_bytes()).hexdigest()}")
