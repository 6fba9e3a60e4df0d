"""A store of many jobs that are over: which of them a listing looks at, and what it finds without being told."""

from pathlib import Path

import pytest

from producer.jobs.control import cancel, retry
from producer.reconcile.reconciler import Reconciler
from producer.reconcile.settled_jobs import IN_TURN, LEAST_MARKS, LISTINGS, SettledJobs
from producer.state.runs import add_run
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.guard import Unguarded
from shared.leasing.scopes import RUN_QUEUE, job_scope
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.cluster import Broker
from tests.unit.producer.reconcile.test_reconciler import LISTING_S, Time, World
from worker.shard import write_shard

JOBS = 2 * IN_TURN + 2


@pytest.fixture
def world(broker: Broker, small_voc: Path, tmp_path: Path) -> World:
    (tmp_path / "store").mkdir()
    return World(broker=broker, store=tmp_path / "store", photos=small_voc, now=Time())


def list_store(world: World, service: Reconciler) -> None:
    world.now.passed_s += LISTING_S + 1
    assert service.tick()


def settle(world: World) -> tuple[Reconciler, list[Job]]:
    """A finished job, and others that are cancelled; the reconciler has seen that nothing happens to them."""
    service = world.reconciler()
    assert service.tick()
    jobs = [world.submit(f"job-{number:02d}") for number in range(JOBS)]
    for job in jobs[1:]:
        cancel(world.storage, None, job.job)
    for line in world.storage.lines(JobPaths(jobs[0].job).shown_plan):
        task = ShardTask.model_validate_json(line)
        write_shard(task, jobs[0], storage=world.storage, data_root=world.photos, guard=Unguarded(), attempt=1)
    for _ in range(4):
        list_store(world, service)
    assert world.storage.exists(JobPaths(jobs[0].job).manifest)
    assert not world.hints()
    return service, jobs


def looked_at(world: World, service: Reconciler, jobs: list[Job]) -> set[str]:
    """The jobs that one listing looks at: it notes the state of each in Redis."""
    world.ledger.client.delete(*(f"voc:{job_scope(job)}" for job in jobs))
    list_store(world, service)
    return {job.job for job in jobs if world.ledger.client.exists(f"voc:{job_scope(job)}")}


def test_jobs_that_are_over_and_unchanged_are_looked_at_in_turn(world: World) -> None:
    service, jobs = settle(world)
    looks = [looked_at(world, service, jobs) for _ in range(3)]
    assert [len(names) for names in looks] == [IN_TURN] * 3
    assert set.union(*looks) == {job.job for job in jobs}


def test_a_retry_of_which_redis_was_not_told_is_noticed_at_the_next_listing(world: World) -> None:
    service, jobs = settle(world)
    for job in jobs[1:]:
        retry(world.storage, None, job.job)
        list_store(world, service)
        assert world.hints() >= {*job.shards}
        assert service.context.ledger.read_state(job_scope(job)).retried == 1


def test_a_receipt_that_was_removed_is_noticed_at_the_next_listing(world: World) -> None:
    service, (job, *_) = settle(world)
    world.storage.remove(JobPaths(job.job).receipt(job.shards[1]))
    list_store(world, service)
    assert world.hints() == {job.shards[1]}


def test_a_shard_that_was_cut_short_in_its_place_is_noticed_when_the_turn_comes(world: World) -> None:
    service, (job, *_) = settle(world)
    path = world.storage.local_path(JobPaths(job.job).tfrecord(job.shards[1]))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    for _ in range(-(-JOBS // IN_TURN)):
        list_store(world, service)
    assert world.hints() == {job.shards[1]}


def test_a_run_that_was_added_untold_is_noticed_though_other_jobs_were_looked_at_since(world: World) -> None:
    service, jobs = settle(world)
    add_run(world.storage, jobs[0], "again", TrainingOptions())
    for _ in range(2):
        world.ledger.touch(jobs[1].job)
        assert service.tick()
    list_store(world, service)
    assert world.ledger.queue_length(RUN_QUEUE) == 1


def test_a_request_that_comes_back_after_its_run_was_removed_by_hand_is_noticed(world: World) -> None:
    service, jobs = settle(world)
    add_run(world.storage, jobs[0], "again", TrainingOptions())
    request = world.storage.read(RunPaths("again").request)
    list_store(world, service)
    world.storage.remove_tree(RunPaths("again").root)
    list_store(world, service)
    world.ledger.client.delete(RUN_QUEUE)
    world.storage.write(RunPaths("again").request, request)
    for _ in range(2):
        list_store(world, service)
    assert world.ledger.queue_length(RUN_QUEUE) == 1


def test_a_reconciler_that_led_again_looks_at_all_jobs(world: World) -> None:
    first, jobs = settle(world)
    first.stop()
    second = world.reconciler()
    assert second.tick()
    assert not first.tick()
    second.stop()
    assert looked_at(world, first, jobs) == {job.job for job in jobs}


def test_a_job_that_was_removed_by_hand_and_submitted_again_is_noticed(world: World) -> None:
    service, jobs = settle(world)
    world.storage.remove_tree(JobPaths(jobs[2].job).root)
    list_store(world, service)
    world.submit(jobs[2].job)  # which borrows all its shards from the finished job
    list_store(world, service)
    assert world.storage.exists(JobPaths(jobs[2].job).manifest)


def test_of_a_large_store_what_was_removed_is_noticed_within_so_many_listings(tmp_path: Path) -> None:
    storage, names = Storage(str(tmp_path)), [f"job-{number:03d}" for number in range(3 * LEAST_MARKS)]
    for name in names:
        for shard in range(2):
            storage.write(f"jobs/{name}/shards/{shard}.json", b"{}")
    settled = SettledJobs(storage)

    def listing() -> set[str]:
        due = settled.list_due()
        for name in due:
            settled.note_look(name, is_over=name in names)
        return due

    assert listing() == listing() == set(names)
    for name in names:
        storage.remove(f"jobs/{name}/shards/1.json")
    looks = [listing() for _ in range(LISTINGS)]
    assert len(looks[0]) <= LEAST_MARKS + IN_TURN, "not all at each of them"
    assert set.union(*looks) == set(names)
    storage.write("jobs/new/job.json", b"{}")
    storage.remove_tree(f"jobs/{names[-1]}")
    assert listing() >= {"new", names[-1]}, "what comes and goes is noticed at once"
