"""Where the files of a job and of a run lie in the store."""

from typing import Final


class JobPaths:
    """Where the files of one job lie in a store (keys relative to its root)."""

    def __init__(self, job: str) -> None:
        self.root: Final = f"jobs/{job}"
        self.job: Final = f"{self.root}/job.json"
        self.shown_plan: Final = f"{self.root}/plan.jsonl"
        self.removed: Final = f"{self.root}/removed.json"
        self.retried: Final = f"{self.root}/retried.json"
        self.shards: Final = f"{self.root}/shards"
        self.cancelled: Final = f"{self.root}/cancelled.json"
        self.failed: Final = f"{self.root}/failed"
        self.contents: Final = f"{self.root}/contents.json"
        self.reused: Final = f"{self.root}/reused.json"
        self.notified: Final = f"{self.root}/notified"
        self.manifest: Final = f"{self.root}/manifest.json"
        self.dataset_info: Final = f"{self.root}/dataset_info.json"
        self.features: Final = f"{self.root}/features.json"
        self.label_map: Final = f"{self.root}/label_map.pbtxt"
        self.labels: Final = f"{self.root}/labels.txt"
        self.lint: Final = f"{self.root}/lint.csv"
        self.progress: Final = f"{self.root}/progress.json"
        self.local_lock: Final = f"{self.root}/local.lock"

    def plan(self, incarnation: str) -> str:
        """What the job's shards hold, one `ShardTask` on each line.

        The file name contains the identity, so that two simultaneous submits of one name do not overwrite each other.
        """
        return f"{self.root}/plan{_of(incarnation)}.jsonl"

    def submit_findings(self, incarnation: str) -> str:
        """What the submit's lint found, one `Finding` on each line."""
        return f"{self.root}/findings{_of(incarnation)}.jsonl"

    def photo_sizes(self, incarnation: str) -> str:
        """The upright sizes of the photos by path, `[width, height]` in pixels, noted by the first audit."""
        return f"{self.root}/photo_sizes{_of(incarnation)}.json"

    def photo_heads(self, incarnation: str) -> str:
        """The hashes of the photos' first bytes by path, from the audit that noted their sizes."""
        return f"{self.root}/photo_heads{_of(incarnation)}.json"

    def tfrecord(self, shard: str) -> str:
        """The shard's records."""
        return f"{self.shards}/{shard}.tfrecord"

    def shard_annotations(self, shard: str) -> str:
        """The shard's images and boxes, one COCO-form JSON object `{"images": [...], "annotations": [...]}`."""
        return f"{self.shards}/{shard}.coco.json"

    def receipt(self, shard: str) -> str:
        """The shard's receipt, its commit point."""
        return f"{self.shards}/{shard}.json"

    def failure(self, shard: str) -> str:
        """Why a shard was given up."""
        return f"{self.failed}/{shard}.json"

    def annotations(self, split: str) -> str:
        """The split's images and boxes in COCO form."""
        return f"{self.root}/annotations_{split}.json"

    def split_list(self, split: str) -> str:
        """The paths of the split's pictures, one on each line."""
        return f"{self.root}/splits/{split}.txt"


def _of(incarnation: str) -> str:
    return f"-{incarnation}" if incarnation else ""


class RunPaths:
    """Where the files of one run lie in a store (keys relative to its root)."""

    def __init__(self, run: str) -> None:
        self.root: Final = f"runs/{run}"
        self.request: Final = f"{self.root}/request.json"
        self.run: Final = f"{self.root}/run.json"
        self.trained: Final = f"{self.root}/trained.json"
        self.cancelled: Final = f"{self.root}/cancelled.json"
        self.failed: Final = f"{self.root}/failed.json"
        self.metrics: Final = f"{self.root}/metrics.json"
        self.progress: Final = f"{self.root}/progress.json"
        self.checkpoints: Final = f"{self.root}/checkpoints"
        self.distilled: Final = f"{self.checkpoints}/distilled.npz"
        self.int8: Final = f"{self.root}/model_int8.tflite"
        # The model without suppression, for a run that hands out no other (`--nms outside`).
        self.raw_int8: Final = f"{self.root}/model_int8_raw.tflite"
        self.detections: Final = f"{self.root}/detections.npz"
        self.findings: Final = f"{self.root}/findings.json"
        self.audit_table: Final = f"{self.root}/audit.csv"
        self.audit_page: Final = f"{self.root}/audit.html"
        self.decisions: Final = f"{self.root}/decisions"


def name_of_weights(key: str) -> str:
    """The name of a file of `weights/` without its digest; for a trained network, the name of its run."""
    return key.rpartition("/")[2].partition("-")[2].removesuffix(".keras")


def labels_of(weights: str) -> str:
    """Where the class names of a trained network lie, beside its file; a key, path or URL, as `weights` is."""
    return f"{weights.removesuffix('.keras')}.labels.txt"
