"""A job that only writes shards, and of whose photos none can be read: it has failed, and says so everywhere."""

from pathlib import Path

import pytest
import typer

from producer.cli.session import end
from producer.finalize.dataset_files import dataset_files
from producer.settings import ProducerSettings
from producer.state.status import job_status
from producer.state.stored import load_job, stored_state
from producer.terminal.job_text import admission_text
from shared.jobs.identity import read_receipt
from shared.jobs.paths import JobPaths
from shared.storage import Storage
from tests.queue.test_announce import Receiver
from tests.tiny import make_tiny_voc
from tests.unit.producer.jobs.test_reuse import ask, work
from tests.unit.producer.reconcile.test_announce import announce


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_voc(tmp_path / "voc", 12)


def finished(folder: Path, store: Path, readable: int) -> Storage:
    """A store with a job whose data set is finished; only the first `readable` photos are whole."""
    for photo in sorted(folder.glob("JPEGImages/*.jpg"))[readable:]:
        photo.write_bytes(photo.read_bytes()[:100] + photo.name.encode())  # no two alike
    storage = Storage(str(store))
    job = ask(folder, "job", storage).job
    work(storage, job, folder)
    dataset_files(job, [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))], storage)
    return storage


def test_a_job_without_a_usable_photo_has_failed_and_ends_with_code_3(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = finished(folder, tmp_path / "store", readable=0)
    job = load_job(storage, "job")
    status = job_status(storage, None, job, 0.1)
    assert (status.state, status.failed) == ("FAILED", 0)
    assert status.why == "no photo could be used (12 photos set aside): lint.csv says why"
    assert status.next is not None
    assert f" lint {folder} --pixels" in status.next
    with pytest.raises(typer.Exit) as ended:
        end(status, ProducerSettings(store=storage.root), as_json=False, local=True)
    assert ended.value.exit_code == 3
    said = capsys.readouterr()
    assert status.why in said.err
    assert "to go on: repair the photos, `" in said.err
    assert said.out == ""
    asked_again = admission_text(ask(folder, "job", storage), stored_state(storage, job, 0.1), storage)
    assert asked_again == "job job: known already, FAILED, 3 of 3 shards done"


def test_the_failure_is_announced_with_its_reason(folder: Path, tmp_path: Path) -> None:
    storage, receiver = finished(folder, tmp_path / "store", readable=0), Receiver()
    manifest = storage.read(JobPaths("job").manifest)
    storage.remove(JobPaths("job").manifest)
    announce(storage, receiver)
    assert receiver.posts == []
    storage.write(JobPaths("job").manifest, manifest)
    announce(storage, receiver)
    receiver.server.shutdown()
    receiver.server.server_close()
    [told] = receiver.posts
    assert told["text"] == "job job failed: no photo could be used (12 photos set aside): lint.csv says why"


def test_one_usable_photo_is_enough(folder: Path, tmp_path: Path) -> None:
    storage = finished(folder, tmp_path / "store", readable=1)
    assert stored_state(storage, load_job(storage, "job"), 0.1).state == "DONE"
