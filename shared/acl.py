"""Passwords -> the text of Redis's ACL file, with one user for each service; `shared/users.acl` has the reasons."""

from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Final

USERS: Final = ("default", "producer", "worker", "trainer", "monitoring")


def acl_text(passwords: Mapping[str, str]) -> str:
    """What `redis-server --aclfile` reads, with the passwords of all `USERS`.

    Raises:
        ValueError: A password has other characters than letters and digits, which could end its word in the file.
    """
    for user in USERS:
        if not passwords[user].isalnum():
            raise ValueError(f"the password of {user!r} must be letters and digits only")
    template = (files("shared") / "users.acl").read_text()
    rules = "".join(f"{line}\n" for line in template.splitlines() if line.startswith("user "))
    return Template(rules).substitute(passwords)
