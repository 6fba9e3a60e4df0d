"""Producer and worker over `rediss://` with a self-signed certificate.

The embedded Valkey is built without TLS: a proxy of ours ends it in front of the socket. The real TLS of Redis is
tested with Compose (tests/docker/test_hosts.py).
"""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.leasing.redis_client import connect
from tests.cluster import Broker, Cluster, assert_common_outcome

NAME = "localhost"


def pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on bytes until one side ends."""
    with suppress(OSError), closing(source), closing(target):
        while chunk := source.recv(65536):
            target.sendall(chunk)


def serve(listener: ssl.SSLSocket, path: Path) -> None:
    """Take connections off TLS and hand them on to the unix socket at `path`."""
    while True:
        try:
            client, _ = listener.accept()
        except ssl.SSLError:
            continue  # a client that does not trust us
        except OSError:
            return
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(str(path))
        for one, other in ((client, upstream), (upstream, client)):
            threading.Thread(target=pump, args=(one, other), daemon=True).start()


@pytest.fixture
def tls(broker: Broker, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of the broker over TLS, and its self-signed certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = tmp_path / "redis.key", tmp_path / "redis.crt"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
    own = ["-addext", f"subjectAltName=DNS:{NAME}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words, *own], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as listener:
        threading.Thread(target=serve, args=(listener, broker.folder / "redis.sock"), daemon=True).start()
        yield f"rediss://{NAME}:{listener.getsockname()[1]}/0", certificate


def test_job_is_done_over_tls_with_a_self_signed_certificate(
    cluster: Cluster, small_voc: Path, tls: tuple[str, Path]
) -> None:
    url, certificate = tls
    secure = f"{url}?ssl_ca_certs={certificate}"
    cluster.serve(VOC_BROKER_URL=secure)
    cluster.worker(VOC_BROKER_URL=secure)
    options = ("--job", "job", "--no-train", "--shard-images", "8")
    cluster.producer("submit", str(small_voc), *options, VOC_BROKER_URL=secure)
    cluster.wait_for("job")
    assert_common_outcome(cluster, "job")


def test_certificate_that_nobody_vouches_for_is_refused(tls: tuple[str, Path]) -> None:
    with pytest.raises(RedisConnectionError, match="certificate verify failed"):
        connect(tls[0]).ping()
