"""The end of a job is posted once, by the service or by the run that waits; the URL is seen by nobody else."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster import REPOSITORY, Cluster, wait_until

SECRET = "s3cr3t-path"


class Receiver:
    """A web server that keeps what is posted; `answers` are the codes of the first posts, then 200."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                code = receiver.answers.pop(0) if receiver.answers else 200
                if code == 200:
                    receiver.posts.append(json.loads(content))
                self.send_response(code)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def submit(cluster: Cluster, folder: Path, job: str, *options: str) -> None:
    cluster.producer("submit", str(folder), "--job", job, "--no-train", "--shard-images", "8", *options)


def assert_secret_is_nowhere(*folders: Path) -> None:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".tfrecord"]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if SECRET in " ".join(line)]


def test_the_service_posts_the_end_of_each_job_once(cluster: Cluster, small_voc: Path, receiver: Receiver) -> None:
    submit(cluster, small_voc, "before")
    serve, worker = cluster.serve(), cluster.worker()
    cluster.wait_for("before")
    serve.terminate()
    serve.wait()
    cluster.settings["VOC_NOTIFY_URL"] = receiver.url
    receiver.answers = [500, 302]
    serve = cluster.serve()
    submit(cluster, small_voc, "job")
    wait_until(lambda: receiver.posts, 60, "the end is posted")
    [told] = receiver.posts
    assert (told["job"], told["state"], told["pictures"]) == ("job", "DONE", 40)
    assert told["text"] == "job job is done after 1 minute of work"
    worker.terminate()
    worker.wait()
    submit(cluster, small_voc, "stopped", "--seed", "9")
    cluster.producer("cancel", "stopped")
    wait_until(lambda: len(receiver.posts) > 1, 60, "the cancel is posted")
    serve.terminate()
    serve.wait()
    cluster.serve()  # another one, which knows of the posts by the store
    time.sleep(3)
    assert [(told["job"], told["state"]) for told in receiver.posts[1:]] == [("stopped", "CANCELLED")]
    status = cluster.producer("status", "--json").stdout
    assert SECRET not in status
    assert_secret_is_nowhere(cluster.store, *[cluster.store.parent])


def test_a_post_that_nobody_took_is_tried_again(cluster: Cluster, small_voc: Path, receiver: Receiver) -> None:
    cluster.settings |= {"VOC_NOTIFY_URL": receiver.url, "VOC_LISTING_S": "1"}
    receiver.answers = [503] * 4
    cluster.serve()
    cluster.worker()
    submit(cluster, small_voc, "job")
    wait_until(lambda: receiver.posts, 60, "the end is posted")
    assert len(receiver.posts) == 1
    assert cluster.events("serve", "not_announced")
    assert SECRET not in cluster.text("serve")


def test_a_retry_announces_no_end_again(cluster: Cluster, small_voc: Path, receiver: Receiver) -> None:
    cluster.settings |= {"VOC_NOTIFY_URL": receiver.url, "VOC_LISTING_S": "1"}
    cluster.serve()
    cluster.worker()
    submit(cluster, small_voc, "job")
    wait_until(lambda: receiver.posts, 60, "the end is posted")
    cluster.producer("retry", "job")
    for run in ("one", "two"):
        cluster.producer("submit", "--job", "job", "--run", run)
        cluster.producer("cancel", "job", "--run", run)
    wait_until(lambda: len(receiver.posts) >= 3, 30, "both cancels are posted")
    cluster.producer("retry", "job")
    cluster.producer("retry", "job", "--run", "one")
    cluster.producer("cancel", "job", "--run", "one")
    wait_until(lambda: len(receiver.posts) >= 4, 30, "the second cancel is an end of its own")
    time.sleep(4)
    told = [(post["run"], post["state"]) for post in receiver.posts]
    assert (told[0], sorted(told[1:3]), told[3:]) == (
        (None, "DONE"),
        [("one", "CANCELLED"), ("two", "CANCELLED")],
        [("one", "CANCELLED")],
    )


def local(store: Path, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "producer", "submit", *options, "--local", "--store", str(store), "--no-train"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "VOC_BROKER_URL": "", **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_local_run_posts_its_end_before_it_ends(small_voc: Path, tmp_path: Path, receiver: Receiver) -> None:
    address = tmp_path / "address"
    address.write_text(f"{receiver.url}\n")
    ended = local(tmp_path / "store", str(small_voc), "--job", "job", "--notify", f"@{address}")
    assert ended.returncode == 0, ended.stderr
    assert [(told["job"], told["state"]) for told in receiver.posts] == [("job", "DONE")]
    again = local(tmp_path / "store", str(small_voc), "--job", "job", VOC_NOTIFY_URL=receiver.url)
    assert again.returncode == 0, again.stderr
    assert len(receiver.posts) == 1
    assert_secret_is_nowhere(tmp_path / "store")


def test_a_receiver_that_is_not_there_costs_seconds_and_no_job(small_voc: Path, tmp_path: Path) -> None:
    ended = local(tmp_path / "store", str(small_voc), "--job", "job", "--notify", "http://127.0.0.1:9/nobody")
    assert ended.returncode == 0, ended.stderr
    assert "nobody" not in ended.stderr
    (warning,) = [line for line in ended.stderr.splitlines() if line.startswith("warning: ")]
    assert warning == "warning: job: its end was not posted to the URL of --notify or VOC_NOTIFY_URL (URLError)"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--notify", "ftp://host/x"], "begins with http:// or https://"),
        (["--notify", "http://user:word@host/x"], "--notify @FILE, or set VOC_NOTIFY_URL"),
        (["--notify", "@/absent"], "No such file"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_url_that_cannot_be_used_is_refused(small_voc: Path, tmp_path: Path, options: list[str], reason: str) -> None:
    ended = local(tmp_path / "store", str(small_voc), *options)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert reason in ended.stderr
