"""The basis of all models of files and messages: the frozen base class, its canonical JSON, names and identities."""

import hashlib
import json
import operator
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from shared.text import class_name

# The schema version of every file and message of this project; raised when an older program could misread a newer file.
SCHEMA_VERSION: Final = 1

# A job's and a run's name is a folder name on every file system and object store, and part of a Redis key.
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

# Normalised as names from XML are, so that what a person types, or an older version submitted, matches them.
ClassName = Annotated[str, AfterValidator(class_name)]

# A name is not an identity: people remove a job and submit another one under its name. The identity is 32 random hex
# digits, made when the job is submitted. Files of version 0.1.0 have none; an empty one is left out of the JSON, so
# that their digests stay the same.
Incarnation = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32})?$"), Field(exclude_if=operator.not_)]

# `schema.SHARD_FORMAT` of the program that wrote the file. Version 0.1.0 wrote none, which counts as 0 and, as above,
# is left out of the JSON.
ShardFormat = Annotated[int, Field(ge=0, exclude_if=operator.not_)]


class Frozen(BaseModel):
    """Base of the models of files, messages and options: immutable, strict about its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """The canonical JSON text: sorted keys, no white space, non-ASCII characters unescaped."""
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """Hex SHA-256 of `to_json()` in UTF-8."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no white space, so that equal values give equal texts and digests."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
