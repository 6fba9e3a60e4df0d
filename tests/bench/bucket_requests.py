"""Requests that a job costs a bucket, counted by the server itself, and what those of a million photos would cost.

Photos of 16 pixels, so that it takes minutes. Larger ones cost one request more, or two: their header is read before
them. Counted from the submit to the manifest, service and workers included, and for the same submit once more.

Run: `python tests/bench/bucket_requests.py [--photos 20000]`.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared.storage import Storage
from tests.object_server import ObjectServer
from tests.tiny import make_tiny_voc

REQUESTS: Final = "SeaweedFS_s3_request"
# List prices of S3 Standard in us-east-1, US dollars, 2026-11: a request that writes or lists, one that reads.
PRICES: Final = {"PUT": 5e-6, "LIST": 5e-6, "COPY": 5e-6, "POST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}


class CountingServer(ObjectServer):
    """An object server that tells how many requests it has answered."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._ports["metricsPort"] = probe.getsockname()[1]

    def counted(self) -> Counter[str]:
        """Requests by S3's word for them, since the start."""
        with urlopen(f"http://127.0.0.1:{self._ports['metricsPort']}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
            found: Counter[str] = Counter()
            for family in families:
                for sample in family.samples:
                    if sample.name == f"{REQUESTS}_total":
                        found[sample.labels["type"]] += int(sample.value)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", default=20_000, type=int)
    photos = parser.parse_args().photos
    with tempfile.TemporaryDirectory() as scratch:
        server = CountingServer(Path(scratch) / "server")
        os.environ.update(server.environment)
        server.start()
        try:
            upload(make_tiny_voc(Path(scratch) / "voc", photos), Storage(server.url("photos/voc")))
            os.environ["VOC_DATA_ROOT"] = server.url("photos")
            words = ["submit", server.url("photos/voc"), "--job", "job", "--no-train", "--store", server.url("out")]
            for name in ("a job, from its submit to its manifest", "the same submit again"):
                before, began = server.counted(), time.perf_counter()
                subprocess.run([sys.executable, "-m", "producer", *words, "--local", "--yes"], check=True)
                tell(name, server.counted() - before, photos, time.perf_counter() - began)
        finally:
            server.stop()


def upload(folder: Path, bucket: Storage) -> None:
    """Put the files of `folder` into a bucket."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda path: bucket.write(str(path.relative_to(folder)), path.read_bytes()), paths))


def tell(name: str, counted: Counter[str], photos: int, seconds: float) -> None:
    """Print the requests, those of a million photos at this rate, and their price."""
    print(f"{name}: {photos} photos, {seconds:.0f} s")
    price = 0.0
    for request, count in sorted(counted.items()):
        million = count * 1e6 / photos
        price += million * PRICES.get(request, PRICES["GET"])
        print(f"  {request:12}{count:9}{million:14,.0f} a million photos")
    print(f"  requests of a million photos: {price:.2f} US dollars")


if __name__ == "__main__":
    main()
