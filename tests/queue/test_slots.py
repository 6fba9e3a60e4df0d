"""A worker's slots: each a process that works at a speed of its own."""

import os

import psutil

from tests.cluster import Cluster, wait_until


def test_each_slot_has_another_nice_level(cluster: Cluster) -> None:
    worker = psutil.Process(cluster.worker(slots=3).pid)
    wait_until(cluster.broker.ledger().workers, 30, "the worker is there")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert worker.nice() == own
    assert sorted(child.nice() for child in worker.children()) == [own, own + 1, own + 2]
