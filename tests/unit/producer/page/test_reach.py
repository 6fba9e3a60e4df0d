"""How a phone reaches the page: over HTTPS, by a token, and by a QR code that says so."""

import http.client
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from producer.page.parts import Parts
from producer.page.reach import own_certificate, qr_svg, qr_terminal
from shared.errors import PipelineError
from shared.jobs.paths import RunPaths
from shared.storage import Storage

BESIDE = Path(__file__).parents[4]


@contextmanager
def page(store: Path, *options: str) -> Iterator[str]:
    """The command itself; the address that it says is to be opened."""
    command = [sys.executable, "-m", "producer", "page", "--store", str(store), *options]
    with subprocess.Popen(command, cwd=BESIDE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            said = serving.stdout.readline()
            found = re.match(r"open (\S+)", said)
            assert found, said + serving.communicate()[1]
            yield found[1]
        finally:
            serving.terminate()
            serving.communicate()


def get(address: str, path: str, trust: ssl.SSLContext, cookie: str = "") -> tuple[int, bytes, str]:
    """Status, body and cookie."""
    place = urlsplit(address)
    with closing(http.client.HTTPSConnection(place.netloc, timeout=60, context=trust)) as connection:
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        return answer.status, answer.read(), (answer.getheader("Set-Cookie") or "").partition(";")[0]


def untested() -> ssl.SSLContext:
    """For a certificate that signed itself."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    Storage(str(tmp_path / "store")).write(RunPaths("mine").int8, b"a model")
    return tmp_path / "store"


def test_on_the_network_it_wants_the_token_over_https_and_shows_it_as_a_qr_code(store: Path) -> None:
    with page(store, "--bind", "0.0.0.0:0", "--tls") as address:
        assert address.startswith("https://")
        local = f"https://127.0.0.1:{urlsplit(address).port}"
        token = urlsplit(address).query
        assert get(local, "/", untested())[0] == 401
        status, _, cookie = get(local, f"/?{token}", untested())
        assert status == 303
        assert cookie
        assert get(local, "/", untested(), cookie)[0] == 200
        base, code = address.partition("?")[0], get(local, "/runs/mine/try.svg", untested(), cookie)
        assert code[:2] == (200, qr_svg(f"{base}runs/mine/try?{token}"))
        assert get(local, "/runs/mine/try.svg", untested())[0] == 401
        shown = get(local, "/runs/mine/try", untested(), cookie)[1]
        assert (b"QR code of this page" in shown) == Parts().has_litert()  # without it there is nothing to try


def test_a_certificate_of_ones_own_is_the_one_that_is_shown(store: Path) -> None:
    with own_certificate(["127.0.0.1"]) as (certificate, key):
        trust = ssl.create_default_context(cafile=str(certificate))
        options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
        with page(store, "--bind", "127.0.0.1:0", *options) as address:
            assert get(address, "/", trust)[0] == 200
            # Of this machine alone: no other is told the way.
            assert get(address, "/runs/mine/try.svg", trust)[0] == 404


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tls-key", "key.pem"], "--tls-certificate and --tls-key go together"),
        (["--tls-certificate", "none.pem", "--tls-key", "key.pem"], "none.pem, --tls-key key.pem: No such file"),
        (["--tls-certificate", "pyproject.toml", "--tls-key", "pyproject.toml"], "PEM"),
    ],
)
def test_files_that_are_no_certificate_are_refused_in_one_line(store: Path, options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "producer", "page", "--store", str(store), "--bind", "127.0.0.1:0", *options]
    ended = subprocess.run(command, cwd=BESIDE, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_key_is_for_this_user_alone_and_gone_afterwards() -> None:
    with own_certificate(["::1", "a.name"]) as (certificate, key):
        folder = key.parent
        assert folder.stat().st_mode & 0o077 == 0
        shown = subprocess.run(
            ["openssl", "x509", "-in", str(certificate), "-noout", "-ext", "subjectAltName"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert "DNS:a.name" in shown
        assert "IP Address:0:0:0:0:0:0:0:1" in shown
        assert "DNS:localhost" in shown
    assert not folder.exists()


def test_without_openssl_it_says_what_to_do(tmp_path: Path) -> None:
    before = os.environ["PATH"]
    os.environ["PATH"] = str(tmp_path)
    try:
        with pytest.raises(PipelineError, match="apt-get install openssl"), own_certificate(["127.0.0.1"]):
            pass
    finally:
        os.environ["PATH"] = before


def test_a_qr_code_of_an_address_with_a_token_is_drawn() -> None:
    assert qr_svg("https://192.0.2.7:8765/?token=abc").startswith(b"<svg ")
    assert len(qr_terminal("https://192.0.2.7:8765/?token=abc").splitlines()) > 12


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def test_changes_are_refused_at_start_where_the_store_is_mounted_read_only(store: Path) -> None:
    mounted = ["unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, str(store)]
    if subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    command = [sys.executable, "-m", "producer", "page", "--store", str(store), "--bind", "127.0.0.1:0"]
    refused = subprocess.run(
        [*mounted, *command, "--allow-changes"], cwd=BESIDE, capture_output=True, text=True, timeout=120, check=False
    )
    assert refused.returncode == 2
    assert f"--allow-changes: {store} is read-only" in " ".join(refused.stderr.split())
    assert len(refused.stderr.splitlines()) == 1
    assert not refused.stdout
