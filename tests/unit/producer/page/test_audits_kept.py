"""Audits that the page keeps in memory: all of a job's are read once, and the reading of one lets others be seen."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from producer.page.labels import Audits
from shared.errors import PlanError
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.unit.producer.page.audited import COUNT, RUN, make_audited
from tests.unit.producer.page.test_kept_labels import add_audit

RUNS = [f"job.audit-{folds}" for folds in range(3, 10)]


class Watched(Storage):
    """A store that notes which audits' findings are read, and holds the reading of one as long as it is told."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.read_runs: list[str] = []
        self.slow_key, self.is_reading, self.may_go_on = "", Event(), Event()

    def read_or_none(self, key: str) -> bytes | None:
        if key.endswith("/findings.json"):
            self.read_runs.append(key.split("/")[1])
        if key == self.slow_key:
            self.is_reading.set()
            assert self.may_go_on.wait(60)
        return super().read_or_none(key)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Watched]:
    storage = Watched(str(make_audited(tmp_path)))
    for run in RUNS[1:]:
        add_audit(storage, run)
    yield storage
    storage.may_go_on.set()


def test_each_of_a_jobs_many_audits_is_read_once(storage: Watched) -> None:
    audits = Audits(storage)
    for run in RUNS * 3:
        assert len(audits.get(run).found.findings) == COUNT
    assert storage.read_runs == RUNS


def test_an_audit_that_was_made_anew_is_read_anew_and_one_that_is_none_is_not_kept(storage: Watched) -> None:
    audits = Audits(storage)
    assert audits.get(RUN).found.folds == 3
    changed = audits.get(RUN).found.model_copy(update={"findings": ()})
    storage.write(RunPaths(RUN).findings, changed.to_json().encode())
    assert audits.get(RUN).found.findings == ()
    for _ in range(2):
        with pytest.raises(PlanError, match=r"there is no audit 'job\.audit-99'"):
            audits.get("job.audit-99")


def test_while_one_audit_is_read_another_can_be_looked_at(storage: Watched) -> None:
    audits, slow = Audits(storage), RUNS[1]
    storage.slow_key = RunPaths(slow).findings
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(audits.get, slow)
        assert storage.is_reading.wait(60)
        second = threads.submit(audits.get, RUN)
        try:
            assert second.result(30).found.run == RUN
        finally:
            storage.may_go_on.set()
        assert first.result(30).found.run == slow
