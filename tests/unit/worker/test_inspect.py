"""A person sees records of the shards, drawn by a seed, with their boxes where they are."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from shared.drawing import CAPTION_PX
from shared.errors import ShardError
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.storage import Storage
from tests.unit.worker.pictures import encode, make_job, soft_picture, voc_xml, write_pair
from worker.__main__ import app
from worker.inspect import TILE_PX, describe_record, draw_grid, draw_records
from worker.shard import write_shard


def run_inspect(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m worker inspect`, whose way out tells errors."""
    command = [sys.executable, "-m", "worker", "inspect", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    (tmp_path / "store").mkdir()
    store = Storage(str(tmp_path / "store"))
    pairs = [
        write_pair(tmp_path / "set", f"p{n}", encode(soft_picture(100, 80, seed=n)), voc_xml((10, 10, 60, 50, "dog")))
        for n in range(6)
    ]
    job, task = make_job(*pairs)
    store.write(JobPaths("job").job, job.to_json().encode())
    write_shard(task, job, storage=store, data_root=tmp_path, guard=Unguarded(), attempt=1)
    return store


def test_same_seed_draws_the_same_records(store: Storage) -> None:
    first = [drawn.number for drawn in draw_records(store, "job", count=4, seed=1)]
    assert first == [drawn.number for drawn in draw_records(store, "job", count=4, seed=1)] == sorted(first)
    assert len(set(first)) == 4
    assert len(draw_records(store, "job", count=100, seed=1)) == 6


def test_grid_shows_each_record_with_its_box(store: Storage) -> None:
    grid = draw_grid(draw_records(store, "job", count=5, seed=0))
    assert grid.shape == (2 * (TILE_PX + CAPTION_PX), 3 * TILE_PX, 3)
    edge = grid[round(50 / 80 * (TILE_PX - 1)), 40:180]
    assert (np.ptp(edge, axis=0) == 0).all()


def test_description_names_every_feature(store: Storage) -> None:
    text = describe_record(draw_records(store, "job", count=1, seed=0)[0])
    assert "image/object/class/text" in text
    assert "dog" in text
    assert "bytes>" in text


def test_job_without_records_and_damaged_shards_are_named(store: Storage) -> None:
    with pytest.raises(ShardError, match=r"no job 'other' in .*/store \(there are: job\)"):
        draw_records(store, "other", count=1, seed=0)
    with pytest.raises(ShardError, match="no finished shard"):
        draw_records(store, "job", count=1, seed=0, split="val")
    shard = store.local_path("jobs/job/shards/train-00000-of-00001.tfrecord")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ShardError, match="checksum"):
        draw_records(store, "job", count=6, seed=0)


def test_command_writes_the_picture_and_prints_a_record(store: Storage, tmp_path: Path) -> None:
    target = tmp_path / "grid.png"
    result = CliRunner().invoke(app, ["inspect", "job", "--store", store.root, "--n", "3", "--png", str(target)])
    assert result.exit_code == 0, result.output
    assert "image/source_id" in result.output
    assert cv2.imread(str(target)) is not None


def test_no_control_character_of_a_record_reaches_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    xml = voc_xml((10, 10, 60, 50), extra="<pose>le\u2028ft\x9b31m</pose>")
    job, task = make_job(write_pair(tmp_path / "set", "p\x1b]0;owned\x07", encode(soft_picture(100, 80)), xml))
    store = Storage(str(tmp_path / "store"))
    store.write(JobPaths("job").job, job.to_json().encode())
    write_shard(task, job, storage=store, data_root=tmp_path, guard=Unguarded(), attempt=1)
    target = tmp_path / "grid\x1b[31m.png"
    result = CliRunner().invoke(app, ["inspect", "job", "--store", store.root, "--png", str(target)])
    assert result.exit_code == 0, result.output
    assert not set(result.output) & set("\x1b\x07\x9b\u2028")
    assert r"p\x1b]0;owned\x07.jpg" in result.output
    assert r"le\u2028ft\x9b31m" in result.output
    assert r"none\x1b" in run_inspect("job", "--store", f"{tmp_path}/none\x1b").stderr


def test_command_says_what_is_wrong_and_exits_1(tmp_path: Path) -> None:
    done = run_inspect("nothing", "--store", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "no job 'nothing' in" in done.stderr


def test_made_up_photos_are_no_bucket_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["synthesize", "s3://bucket/set"])
    assert "expected a folder of this machine, found a URL" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_command_synthesizes_a_set(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["synthesize", str(tmp_path / "set"), "--images", "3"])
    assert result.exit_code == 0, result.output
    assert '"images": 3' in result.output


@pytest.mark.parametrize("there", ["JPEGImages/shapes_00003.jpg", "images/001.jpg", "ImageSets/Main/trainval.txt"])
def test_a_made_up_set_never_mixes_with_other_photos(tmp_path: Path, there: str) -> None:
    words = ["synthesize", str(tmp_path), "--images", "3"]
    for _ in range(2):  # its own set is made again
        assert CliRunner().invoke(app, words).exit_code == 0
    lists = tmp_path / "ImageSets/Main/train.txt"
    lists.write_text("mine\n")
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    told = str(CliRunner().invoke(app, words).exception)
    assert told.endswith(
        f"{tmp_path / there} lies there, and made-up photos and lists would mix with it: name a new folder"
    )
    assert lists.read_text() == "mine\n"
