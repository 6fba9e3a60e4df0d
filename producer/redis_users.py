"""A folder -> passwords of the broker's users, made if absent, and the ACL file that Redis loads.

It has one user for each service; `shared/users.acl` has the reasons.
"""

import os
import secrets
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

USERS: Final = ("default", "producer", "worker", "trainer", "monitoring")

# Written as hex digits, which cannot end a word in Redis's configuration or a part of a URL.
PASSWORD_BYTES = 24


def make_users(folder: Path) -> Path:
    """Make `<user>_password` for every user that has none, and `users.acl` of all; readable by their owner only.

    Args:
        folder: Made if absent. Passwords that are there already are kept.

    Returns:
        The path of the ACL file.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file, passwords = folder / "users.acl", {user: _password(folder / f"{user}_password") for user in USERS}
    _write_private(file, acl_text(passwords), os.O_TRUNC)
    return file


def _password(file: Path) -> str:
    if not file.exists():
        _write_private(file, secrets.token_hex(PASSWORD_BYTES), os.O_EXCL)
    return file.read_text().strip()


def _write_private(file: Path, text: str, how: int) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | how, 0o600), "w") as opened:
        opened.write(text)


def acl_text(passwords: Mapping[str, str]) -> str:
    """What `redis-server --aclfile` reads, with the passwords of all `USERS`.

    Raises:
        ValueError: A password has characters other than letters and digits, which could end its word in the file.
    """
    for user in USERS:
        if not passwords[user].isalnum():
            raise ValueError(f"the password of {user!r} must be letters and digits only")
    template = (files("shared") / "users.acl").read_text()
    rules = "".join(f"{line}\n" for line in template.splitlines() if line.startswith("user "))
    return Template(rules).substitute(passwords)
