"""How a phone reaches the page: a certificate made for this machine's address, and a QR code of the address.

Browsers allow a camera only over HTTPS, except on the machine itself.
"""

import io
import ipaddress
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.errors import PipelineError

# How long a certificate is valid: it is removed when the page stops, and phones refuse more than 825 days.
_DAYS: Final = 90


@contextmanager
def own_certificate(hosts: list[str]) -> Iterator[tuple[Path, Path]]:
    """A self-signed certificate for `hosts` (names and addresses), and its key; both are removed after the block.

    Raises:
        PipelineError: There is no openssl, or it refuses.
    """
    names = [f"IP:{host}" if _is_address(host) else f"DNS:{host}" for host in dict.fromkeys([*hosts, "localhost"])]
    with tempfile.TemporaryDirectory(prefix="voc2tflite-tls-") as folder:  # only this user can read it
        certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", str(_DAYS), "-subj", "/CN=voc2tflite page", "-addext", f"subjectAltName={','.join(names)}"]
        command += ["-addext", "extendedKeyUsage=serverAuth", "-keyout", str(key), "-out", str(certificate)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)  # noqa: S603 - no shell
        except FileNotFoundError as error:
            raise PipelineError(
                "--tls: openssl, which makes the certificate, is not installed: apt-get install openssl, "
                "or name your own by --tls-certificate and --tls-key"
            ) from error
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = str(error.stderr or error).strip().rpartition("\n")[2]
            raise PipelineError(f"--tls: openssl made no certificate: {said}") from error
        yield certificate, key


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def qr_svg(text: str) -> bytes:
    """A QR code of `text` as an SVG picture, dark on light even in a dark colour scheme."""
    import segno

    picture = io.BytesIO()
    segno.make(text, error="m", micro=False).save(picture, kind="svg", scale=5, border=4, light="#fff", xmldecl=False)
    return picture.getvalue()


def qr_terminal(text: str) -> str:
    """A QR code of `text` for a terminal, with two rows of squares in each line."""
    import segno

    lines = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(out=lines, compact=True, border=2)
    return lines.getvalue()
