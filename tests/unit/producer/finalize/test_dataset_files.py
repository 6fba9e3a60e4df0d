import hashlib
import json
from pathlib import Path

import pytest

from producer.dataset.lint import lint_folder
from producer.finalize.dataset_files import check_annotations, dataset_files
from producer.jobs.plan import PlanLines, plan_job
from shared.errors import ShardError
from shared.jobs.findings import Finding
from shared.jobs.job import Job, ShardTask
from shared.jobs.labels import LabelMap
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.jobs.schema import FEATURES
from shared.specs.data import JobSpec
from shared.specs.frozen import canonical_json
from shared.storage import Storage
from tests.unit.producer.folders import voc_xml, write_pair

PATHS = JobPaths("job")


class Finished:
    """A planned job of 40 pictures whose shards 'workers' have finished, one box a picture."""

    def __init__(self, root: Path, *, dry: bool = False) -> None:
        for index in range(40):
            xml = voc_xml([("it's", 1, 1, 9, 9), ("cat", 2, 2, 2, 9)] if index == 7 else [("cat", 1, 1, 9, 9)])
            write_pair(root / "set", f"{index:02d}.jpg", f"{index:02d}.xml", xml)
        (root / "store").mkdir()
        self.storage = Storage(str(root / "store"))
        spec = JobSpec(shard_images=8, dry=dry)
        linted = lint_folder(root / "set", spec=spec)
        tasks = plan_job(linted, job="job")
        lines = PlanLines(tasks)
        self.storage.write_lines(PATHS.plan(""), lines)
        self.storage.write_lines(PATHS.submit_findings(""), (finding.to_json() for finding in linted.findings))
        self.job = Job(
            job="job",
            dataset="",
            folder="set",
            spec=spec,
            run=None,
            labels=linted.labels.names,
            splits=tasks.split_plans(lines.digests),
            counts=linted.counts,
            request_digest="0",
        )
        self.receipts = [self._finish(task) for task in tasks]

    def _finish(self, task: ShardTask) -> ShardReceipt:
        ids = [pair.source_id for pair in task.pairs]
        sidecar = {
            "images": [
                {"id": pair.source_id, "file_name": pair.image, "width": 320, "height": 320} for pair in task.pairs
            ],
            "annotations": [{"id": number * 1000, "image_id": number, "category_id": 1} for number in ids],
        }
        annotations = canonical_json(sidecar).encode()
        if not self.job.spec.dry:
            self.storage.write(PATHS.shard_annotations(task.shard), annotations)
        again = [finding for pair in task.pairs if pair.image == "07.jpg" for finding in (ZERO_AREA, BY_PIXELS)]
        return ShardReceipt(
            job="job",
            shard=task.shard,
            split=task.split,
            index=task.index,
            count=task.count,
            task_digest=task.digest(),
            attempt=1,
            size_bytes=None if self.job.spec.dry else 100,
            sha256=None if self.job.spec.dry else "0" * 64,
            annotations_sha256=None if self.job.spec.dry else hashlib.sha256(annotations).hexdigest(),
            written=len(ids),
            quarantined=0,
            background=0,
            objects_read=len(ids),
            objects_written=len(ids),
            class_counts={"cat": len(ids)},
            counters={finding.kind: 1 for finding in again},
            findings=tuple(again),
        )

    def read(self, key: str) -> str:
        return self.storage.read(key).decode()


ZERO_AREA = Finding(file="07.xml", object_index=2, rank="dropped", kind="box_zero_area", found="", done="")
BY_PIXELS = Finding(
    file="07.xml", object_index=1, rank="mended", kind="box_clipped", found="far", done="clipped", class_name="it's"
)


@pytest.fixture
def finished(tmp_path: Path) -> Finished:
    return Finished(tmp_path)


def test_the_manifest_sums_the_receipts_and_is_written(finished: Finished) -> None:
    manifest = dataset_files(finished.job, reversed(finished.receipts), finished.storage)
    assert Manifest.model_validate_json(finished.read(PATHS.manifest)) == manifest
    assert sum(manifest.examples(split) for split in manifest.splits) == 40
    assert manifest.counters["written"] == manifest.counters["objects_read"] == 40
    assert manifest.counters["box_clipped"] == 1
    assert not manifest.failed
    files = [shard.file for shards in manifest.splits.values() for shard in shards]
    assert files == [f"{shard}.tfrecord" for shard in finished.job.shards]


def test_shards_without_a_receipt_are_listed_as_failed(finished: Finished) -> None:
    manifest = dataset_files(finished.job, finished.receipts[1:], finished.storage)
    assert manifest.failed == (finished.receipts[0].shard,)
    train = json.loads(finished.read(PATHS.dataset_info))["splits"][0]
    assert train["shardLengths"][0] == "0"
    assert len(train["shardLengths"]) == finished.receipts[0].count


def test_annotations_are_coco_with_every_picture_and_category(finished: Finished) -> None:
    dataset_files(finished.job, finished.receipts, finished.storage)
    names = []
    for split in finished.job.splits:
        coco = json.loads(finished.read(PATHS.annotations(split)))
        assert coco["categories"] == [
            {"id": 1, "name": "cat", "supercategory": ""},
            {"id": 2, "name": "it's", "supercategory": ""},
        ]
        assert [box["image_id"] for box in coco["annotations"]] == [image["id"] for image in coco["images"]]
        listed = finished.read(PATHS.split_list(split)).splitlines()
        assert sorted(listed) == sorted(image["file_name"] for image in coco["images"])
        names += listed
    assert sorted(names) == [f"{index:02d}.jpg" for index in range(40)]


def test_annotations_name_the_scene_that_group_by_finds(finished: Finished) -> None:
    grouped = finished.job.model_copy(update={"spec": JobSpec(shard_images=8, group_by="^(.)")})
    for job, expected in ((finished.job, None), (grouped, "0123")):
        dataset_files(job, finished.receipts, finished.storage)
        files = [json.loads(finished.read(PATHS.annotations(split))) for split in job.splits]
        scenes = {image["file_name"]: image.get("scene") for coco in files for image in coco["images"]}
        assert scenes == {f"{index:02d}.jpg": expected and expected[index // 10] for index in range(40)}


def test_labels_are_written_in_both_forms(finished: Finished) -> None:
    dataset_files(finished.job, finished.receipts, finished.storage)
    assert finished.read(PATHS.labels) == "cat\nit's\n"
    assert finished.read(PATHS.label_map) == LabelMap(("cat", "it's")).to_pbtxt()
    assert "name: 'it\\'s'" in finished.read(PATHS.label_map)


def test_lint_csv_has_submit_and_receipts_and_nothing_twice(finished: Finished) -> None:
    dataset_files(finished.job, finished.receipts, finished.storage)
    lines = finished.read(PATHS.lint).splitlines()
    assert [line for line in lines if "class_small" not in line] == [
        "file,object,rank,kind,found,done,class",
        '07.xml,2,dropped,box_zero_area,"xmin 2, ymin 2, xmax 2, ymax 9",object dropped,cat',
        "07.xml,1,mended,box_clipped,far,clipped,it's",
    ]


def test_a_dry_job_writes_its_lint_and_no_data_set(tmp_path: Path) -> None:
    finished = Finished(tmp_path, dry=True)
    manifest = dataset_files(finished.job, finished.receipts, finished.storage)
    assert not any(manifest.splits.values())
    assert not manifest.failed
    assert finished.storage.list_names(PATHS.root) == ["findings.jsonl", "lint.csv", "manifest.json", "plan.jsonl"]


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_shard_without_its_annotations_stops_before_the_manifest(finished: Finished, content: bytes | None) -> None:
    key = PATHS.shard_annotations(finished.receipts[0].shard)
    finished.storage.remove(key)
    if content is not None:
        finished.storage.write(key, content)
    with pytest.raises(ShardError, match=finished.receipts[0].shard):
        dataset_files(finished.job, finished.receipts, finished.storage)
    assert not finished.storage.exists(PATHS.manifest)


def test_annotations_that_differ_from_the_receipt_are_refused(finished: Finished) -> None:
    receipt = finished.receipts[0]
    check_annotations(finished.storage, receipt)
    finished.storage.write(PATHS.shard_annotations(receipt.shard), b"{}")
    with pytest.raises(ShardError, match="found other content"):
        check_annotations(finished.storage, receipt)
    finished.storage.remove(PATHS.shard_annotations(receipt.shard))
    with pytest.raises(ShardError, match="found no file"):
        check_annotations(finished.storage, receipt)


def test_features_are_those_of_the_record(finished: Finished) -> None:
    dataset_files(finished.job, finished.receipts, finished.storage)
    features = json.loads(finished.read(PATHS.features))["featuresDict"]["features"]
    assert features.keys() == FEATURES.keys()
    assert features["image/object/area"]["tensor"] == {
        "dtype": "float32",
        "encoding": "none",
        "shape": {"dimensions": ["-1"]},
    }


def test_a_name_in_a_plan_of_before_stays_on_its_line_of_the_split_list(tmp_path: Path) -> None:
    finished = Finished(tmp_path)
    plan = finished.storage.read(PATHS.plan("")).replace(b'"00.jpg"', rb'"0\n0.jpg"')
    finished.storage.write(PATHS.plan(""), plan)
    dataset_files(finished.job, finished.receipts, finished.storage)
    listed = [
        line for split in finished.job.splits for line in finished.storage.read(PATHS.split_list(split)).splitlines()
    ]
    assert sorted(listed) == sorted([rb"0\n0.jpg", *(f"{index:02d}.jpg".encode() for index in range(1, 40))])
