"""The process that prepares pictures apart: its own death is not a picture's fault."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from shared.errors import StorageError
from shared.jobs.job import PathPair
from tests.unit.worker.pictures import encode, make_job, soft_picture, voc_xml, write_pair
from worker.isolate import Isolated, Limits
from worker.record.prepare import PreparedExample, Quarantine, prepare_example, recipe_of


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "worker.isolate" in child.cmdline()]


@pytest.mark.parametrize(("fault", "survives"), [("", True), ("isolated:start", False)])
def test_a_death_in_the_start_blames_no_picture(tmp_path: Path, fault: str, *, survives: bool) -> None:
    pair = write_pair(
        tmp_path / "set", "a", encode(soft_picture(200, 100)), voc_xml((20, 10, 120, 60), size=(200, 100))
    )
    job, _ = make_job(pair)
    with Isolated(job, tmp_path, Limits(memory_mb=2048, picture_s=60), fault) as prepare:
        if survives:
            assert isinstance(prepare(pair), PreparedExample)
        else:
            with pytest.raises(OSError, match="SIGKILL in its start"):
                prepare(pair)


def test_the_child_gives_the_outcomes_of_this_process(tmp_path: Path) -> None:
    folder, jpeg = tmp_path / "set", encode(soft_picture(200, 100))
    pairs = [
        write_pair(folder, "a", jpeg, voc_xml((20, 10, 120.1, 60.7), (0, 0, 300, 50, "dog"), size=(200, 100))),
        write_pair(folder, "b", jpeg[:700], voc_xml((20, 10, 120, 60))),
        write_pair(folder, "c", jpeg, None),
    ]
    job, _ = make_job(*pairs)
    with Isolated(job, tmp_path, Limits(memory_mb=2048, picture_s=60), "") as prepare:
        apart = [prepare(pair) for pair in pairs]
    assert apart == [prepare_example(pair, recipe=recipe_of(job, tmp_path)) for pair in pairs]
    assert [type(outcome) for outcome in apart] == [PreparedExample, Quarantine, PreparedExample]


def test_a_folder_that_is_absent_is_no_pictures_fault(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "set", "a", encode(soft_picture(200, 100)), None)
    job, _ = make_job(pair)
    (tmp_path / "set").rename(tmp_path / "gone")
    with (
        Isolated(job, tmp_path, Limits(memory_mb=2048, picture_s=60), "") as prepare,
        pytest.raises(StorageError, match="the folder of the data set is absent"),
    ):
        prepare(pair)


@pytest.mark.parametrize(
    ("poison", "death"), [("segv", "ended its process by SIGSEGV"), ("loop", "took more than 2 s")]
)
def test_a_picture_that_ends_the_child_is_quarantined_and_the_next_one_is_prepared(
    tmp_path: Path, poison: str, death: str
) -> None:
    pairs = [write_pair(tmp_path / "set", stem, encode(soft_picture(200, 100)), None) for stem in ("a", "b")]
    job, _ = make_job(*pairs)
    with Isolated(job, tmp_path, Limits(memory_mb=2048, picture_s=2), f"poison:{poison}:a.jpg") as prepare:
        killed = prepare(pairs[0])
        assert isinstance(killed, Quarantine)
        assert children() == []
        assert (killed.finding.kind, killed.finding.found) == ("image_poison", f"decoding it {death}")
        assert isinstance(prepare(pairs[1]), PreparedExample)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for a process's limits")
def test_the_child_has_its_limits_and_ends_with_the_block(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "set", "a", encode(soft_picture(200, 100)), None)
    with Isolated(make_job(pair)[0], tmp_path, Limits(memory_mb=2048, picture_s=60), "") as prepare:
        prepare(pair)
        (child,) = children()
        assert child.rlimit(psutil.RLIMIT_AS) == (2**31, 2**31)
        assert child.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    assert children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/mem, whose first byte is an EIO")
def test_the_child_blames_a_file_that_is_refused_as_it_is_asked_in_a_repeated_attempt_only() -> None:
    pair = PathPair(image="mem", annotation=None, source_id=1, fingerprint="0" * 16)
    job = make_job(pair)[0].model_copy(update={"folder": "self"})
    with Isolated(job, Path("/proc"), Limits(memory_mb=2048, picture_s=60), "") as prepare:
        outcome = prepare(pair)
    assert isinstance(outcome, Quarantine)
    assert (outcome.finding.kind, outcome.finding.file) == ("image_unreadable", "mem")


def test_a_child_that_dies_between_two_pictures_is_followed_and_blames_none(tmp_path: Path) -> None:
    """As by the kernel when memory is short, while the next picture is fetched."""
    pairs = [write_pair(tmp_path / "set", stem, encode(soft_picture(200, 100)), None) for stem in ("a", "b")]
    with Isolated(make_job(*pairs)[0], tmp_path, Limits(memory_mb=2048, picture_s=60), "") as prepare:
        prepare(pairs[0])
        (child,) = children()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert isinstance(prepare(pairs[1]), PreparedExample)
