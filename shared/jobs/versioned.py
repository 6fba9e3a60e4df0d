"""Text of a file or message -> its model, or an error that says which version wrote it.

A job outlives an upgrade, so its files may be older or newer than the program that reads them. `SCHEMA_VERSION` is
raised when a change makes the same text mean something else, or needs something that older files lack. A new field with
a default needs no new version; an older program reports that it does not know the field.
"""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from shared import __version__
from shared.errors import FormatError, MessageError, VersionError
from shared.specs.frozen import SCHEMA_VERSION

M = TypeVar("M", bound=BaseModel)


def read_stored(model: type[M], text: str | bytes, where: str) -> M:
    """The JSON `text`, a file's content or one line of it, as a `model`; `where` names the file in errors.

    Raises:
        VersionError: It was written by an older or newer version.
        FormatError: It is damaged, or has fields that this version does not know.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        other = _other_version(_content(text))
        if other is not None:
            raise VersionError(f"{where}: {other}") from error
        tail = f"damaged, or written by another version than {__version__}"
        raise FormatError(f"{where}: {_first_fault(error)}: {tail}") from error


def read_message(model: type[M], message: Any) -> M:
    """The JSON value of a message as a `model`; it is not trusted, as anybody may have put it on the queue.

    Raises:
        MessageError: It is of another version, or malformed.
    """
    try:
        return model.model_validate(message)
    except ValidationError as error:
        raise MessageError(f"not a {model.__name__}: {_other_version(message) or _first_fault(error)}") from error


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "the text"
    found = first["input"]
    shown = found.decode(errors="backslashreplace") if isinstance(found, bytes) else str(found)
    return f"{place}: {first['msg']} (found {shown[:80]!r})"


def _content(text: str | bytes) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


def _other_version(content: Any) -> str | None:
    """What to do about `content` if it names a schema version other than ours; None if it does not."""
    found = content.get("schema_version", SCHEMA_VERSION) if isinstance(content, dict) else SCHEMA_VERSION
    if found == SCHEMA_VERSION:
        return None
    is_newer = isinstance(found, int) and found > SCHEMA_VERSION
    age, remedy = ("a newer", "upgrade this program") if is_newer else ("an older", "finish it with that version")
    return (
        f"schema version {str(found)[:20]}, and voc2tflite {__version__} reads {SCHEMA_VERSION}: written by {age} "
        f"version; {remedy}, or submit the photos anew under another name"
    )
