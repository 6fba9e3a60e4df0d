"""Azurite, the vendor's emulator of Azure's Blob storage, on loopback for tests: `az://` asks a server of its own kind.

It comes from npm (`make azurite`); without it these tests are left out. The account is one of this server alone.
"""

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Final

from tests.cluster import REPOSITORY, wait_until
from tests.ports import claim_ports

CONTAINER: Final = "voc-test"
_ACCOUNT: Final = "tests"
_KEY: Final = base64.b64encode(b"a key of the tests' own, of 64 b").decode()
_PROGRAM: Final = "azurite-blob"
_VERSION: Final = "2021-08-06"


def azurite() -> Path | None:
    """Azurite's program, below `out/azurite` or on PATH."""
    own = REPOSITORY / "out/azurite/node_modules/.bin"
    found = shutil.which(_PROGRAM, path=f"{own}{os.pathsep}{os.environ.get('PATH', '')}")
    return None if found is None else Path(found)


class AzureServer:
    """Azurite on one folder, with one container."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        [self._port] = claim_ports(1)
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to use it, as a person would set it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_ENDPOINT": f"http://{self.address}/{_ACCOUNT}",
        }

    def url(self, folder: str) -> str:
        """The URL of a folder of the container."""
        return f"az://{CONTAINER}/{folder}"

    def start(self) -> None:
        """Start, and make the container."""
        command = [str(azurite()), "--silent", "--disableTelemetry", "--location", str(self._folder)]
        command += ["--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        environment = {**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"}
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(self._has_container, 60, "Azurite answers")
        except AssertionError:
            self.stop()
            raise

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _has_container(self) -> bool:
        """Make the container by the REST interface, as no client of ours does: signed with the account's key."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        named = "".join(f"{name}:{value}\n" for name, value in headers.items())
        # https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key: eleven headers that are empty.
        # An emulator has the account in the path, so it is there twice.
        signed = "PUT" + 12 * "\n" + f"{named}/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}\nrestype:container"
        digest = hmac.digest(base64.b64decode(_KEY), signed.encode(), hashlib.sha256)
        headers |= {"Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Length": "0"}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("PUT", f"/{_ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
            return connection.getresponse().status in (201, 409)
        except OSError:
            return False
        finally:
            connection.close()
