"""The process that prepares pictures apart: its own death is not a picture's fault."""

from pathlib import Path

import pytest

from tests.unit.worker.pictures import encode, make_job, soft_picture, voc_xml, write_pair
from worker.isolate import Limits, isolated
from worker.prepare import PreparedExample


@pytest.mark.parametrize(("fault", "survives"), [("", True), ("isolated:start", False)])
def test_a_death_in_the_start_blames_no_picture(tmp_path: Path, fault: str, *, survives: bool) -> None:
    pair = write_pair(
        tmp_path / "set", "a", encode(soft_picture(200, 100)), voc_xml((20, 10, 120, 60), size=(200, 100))
    )
    job, _ = make_job(pair)
    with isolated(job, tmp_path, Limits(memory_mb=2048, picture_s=60), fault) as prepare:
        if survives:
            assert isinstance(prepare(pair), PreparedExample)
        else:
            with pytest.raises(OSError, match="SIGKILL in its start"):
                prepare(pair)
