"""A URL -> the bucket that it names, opened with this machine's credentials."""

import os
import re
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as NotAProfileFile
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from shared.errors import StorageError
from shared.settings import RequestSettings

EXPECTED: Final = "expected a folder, or s3://, gs:// or az:// with a bucket and perhaps a folder in it"

# The variable that the clients themselves look for first.
_KEY: Final = "AWS_ACCESS_KEY_ID"
# The settings of an AWS profile, and their names in the client.
_PROFILE: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
}
# What servers answer to wrong credentials, or to right ones without permission; the last line is Azure's.
_DENIED: Final = (
    *("AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId", "Token"),
    *("400 Bad Request", "401 Unauthorized", "403 Forbidden"),
    *("AuthorizationFailure", "AuthenticationFailed", "AuthorizationPermissionMismatch"),
)
# What servers answer if the bucket does not exist: S3 and Google, then Azure.
NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
# By scheme: the variable for a server of one's own, one of the variables for credentials, and what to set or have.
_ACCESS: Final = {
    "s3": ("AWS_ENDPOINT_URL", _KEY, f"{_KEY} and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the machine's role"),
    "gs": (
        "GOOGLE_BASE_URL",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_APPLICATION_CREDENTIALS or the machine's service account",
    ),
    "az": (
        "AZURE_ENDPOINT",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or the machine's identity",
    ),
}
# How long a server that is away or asks to slow down is retried; then the caller decides. Five attempts at a shard thus
# last more than a minute, and a person who mistyped an address waits only this long. The time is the limit, not the
# number of retries: pauses are random, and 20 retries were over after 7 to 19 s.
_RETRIES: Final = {
    "max_retries": 1000,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=3), "base": 2},
}
# No TLS only if an address itself says http:// (AWS_ENDPOINT_URL).
_CLIENT: Final = {"allow_http": True, "connect_timeout": timedelta(seconds=5)}
# With a checksum, servers refuse data that changed on the way. S3 does so by the signature alone; SeaweedFS 4.48 does
# not.
_S3: Final = {"checksum_algorithm": "SHA256"}


def open_bucket(url: str) -> ObjectStore:
    """The bucket and folder that `url` names; no request is made.

    Credentials come from the environment (`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`,
    `AZURE_STORAGE_ACCOUNT_KEY`, ...); otherwise, on S3, from a profile of `~/.aws`; otherwise from the machine's role.

    Raises:
        StorageError: The URL is of an unsupported kind or holds a secret, or the named profile has no keys.
    """
    require_plain(url)
    own: dict[str, Any] = {**_S3, **profile_settings(os.environ)} if url.startswith("s3:") else {}
    client = {**_CLIENT, "timeout": timedelta(seconds=RequestSettings().request_timeout_s)}
    options: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES, **own}
    try:
        bucket: ObjectStore = from_url(url, **options)
    except (BaseError, ValueError, OSError) as error:
        raise StorageError(f"{url}: {str(error).splitlines()[0]}") from error
    return bucket


def require_plain(url: str) -> None:
    """Refuse a URL of an unsupported kind, or one that may hold a secret; the error does not repeat the secret.

    Raises:
        StorageError: The URL is refused.
    """
    scheme, _, rest = url.partition("://")
    if set(rest) & set("@?#") or ":" in rest.split("/")[0]:
        raise StorageError(
            f"{re.sub('[^a-z0-9]', '', scheme.lower())[:8]}://…: {EXPECTED}; found a user, a password, a port or a "
            f"query in the URL: credentials come from the environment ({_KEY} and the like), a profile or the machine"
        )
    if scheme not in ("s3", "gs", "az") or not urlsplit(url).netloc:
        raise StorageError(f"{url}: {EXPECTED}")


def advice(url: str, reason: str, rights: str = "list the bucket and to read what is in it") -> str:
    """What a person can do about a request to the bucket of `url` that failed for `reason`; it needs `rights`."""
    scheme = url.partition(":")[0]
    own_server, key, how = _ACCESS[scheme]
    if any(told in reason for told in NO_BUCKET):
        kind = "container" if scheme == "az" else "bucket"
        return f"is the {kind}'s name right, and {own_server} for a server of your own?"
    has_profile = scheme == "s3" and profile_settings(os.environ).get("access_key_id")
    is_denied = any(told in reason for told in _DENIED)
    # Azure and Google have further sources of credentials, so only a refusal shows that there are none.
    if not (os.environ.get(key) or has_profile) and (scheme == "s3" or is_denied):
        return f"no credentials were found: set {how}"
    if is_denied:
        return f"these credentials must be right, and be allowed to {rights}"
    return f"does its server answer ({own_server})?"


def profile_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys and region of a profile in `~/.aws`, which AWS's own programs read and obstore does not.

    Args:
        environment: `AWS_PROFILE` names the profile; keys in the environment take precedence.

    Raises:
        StorageError: The named profile has no keys.
    """
    if environment.get(_KEY):
        return {}
    name, home = environment.get("AWS_PROFILE"), Path.home() / ".aws"
    keys = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
    others = Path(environment.get("AWS_CONFIG_FILE") or home / "config")
    found = _section(others, f"profile {name}" if name else "default") | _section(keys, name or "default")
    if name and "aws_access_key_id" not in found:
        raise StorageError(
            f"AWS_PROFILE={name}: {keys} has no aws_access_key_id for it; of a profile with SSO or a role, "
            "`aws configure export-credentials --format env` prints keys to set"
        )
    if environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        found.pop("region", None)
    return {_PROFILE[key]: value for key, value in found.items() if key in _PROFILE}


def _section(file: Path, name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(file, encoding="utf-8")
    except (NotAProfileFile, OSError, ValueError) as error:
        raise StorageError(f"{file}: expected a file of AWS profiles: {type(error).__name__}") from error
    return dict(parser[name]) if parser.has_section(name) else {}
