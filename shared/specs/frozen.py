"""What the models of files and messages are made of: the frozen base, its canonical JSON, names and identities."""

import hashlib
import json
import operator
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from shared.text import class_name

# Of every file and message of this project; raised when an older program could misread a newer file.
SCHEMA_VERSION: Final = 1

# A job's and a run's name is a folder name on every file system and object store, and part of a Redis key.
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

# Spelled as the names read from XML are, so that what a person types, or an older version submitted, is the same.
ClassName = Annotated[str, AfterValidator(class_name)]

# A name is not an identity: people remove a job and submit another of its name. This is one: 32 random hex digits, made
# when the job is submitted. What version 0.1.0 wrote has none, and its text must stay what its digest was made of.
Incarnation = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32})?$"), Field(exclude_if=operator.not_)]

# `schema.SHARD_FORMAT` of whoever wrote it. Version 0.1.0 noted none, which is 0 and, as above, not in the text.
ShardFormat = Annotated[int, Field(ge=0, exclude_if=operator.not_)]


class Frozen(BaseModel):
    """A value at a door: immutable, strict about its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """The canonical JSON text: sorted keys, no white space, UTF-8 as it is."""
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """Hex SHA-256 of `to_json()` in UTF-8."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no white space, so that a digest of the text is one of the meaning."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
