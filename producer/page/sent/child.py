"""A sent photo and a model -> what the model sees in it, found in a separate process.

The page's process decodes no photo and loads no runtime: `python -m trainer.inference.one_photo` does, and ends after
each photo. The photo is not kept: it is in a file without a name until the answer is there.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from shared.errors import ImageError, PipelineError
from shared.specs.frozen import canonical_json

MOST_PHOTO_BYTES: Final = 32 << 20
# Half the pixels of the largest photos that phones make; such a photo takes a second.
MOST_PIXELS: Final = 50_000_000
# The longest that the process may take, start included. With an idle core it takes 1 s.
MOST_S: Final = 30.0
# The most that is read of the answer; the child keeps to the same limit.
_MOST_TOLD_BYTES: Final = 8 << 20
_ROOT: Final = Path(__file__).resolve().parents[3]
_PROGRAM: Final = "trainer.inference.one_photo"
# The packages that the program needs; none is imported here.
_NEEDED: Final = {"trainer": "the trainer", "ai_edge_litert": "LiteRT", "cv2": "OpenCV", "numpy": "numpy"}
# The environment variables that the child gets; it gets no secrets.
_KEPT: Final = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR")

Number = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]


class Seen(BaseModel):
    """One detection: class ids from 1, (xmin, ymin, xmax, ymax) in pixels of the upright photo."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: Annotated[str, Field(max_length=10_000)]
    class_id: Annotated[int, Field(ge=1, le=1 << 20)]
    score: Number
    box: tuple[Number, Number, Number, Number]


class SeenPhoto(BaseModel):
    """What a model sees in a photo, surest first; `threshold` is the model's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: Annotated[int, Field(ge=1, le=1 << 20)]
    height: Annotated[int, Field(ge=1, le=1 << 20)]
    threshold: Number
    notes: Annotated[tuple[str, ...], Field(max_length=10)]
    seen: Annotated[tuple[Seen, ...], Field(max_length=1000)]


class _Refused(BaseModel):
    model_config = ConfigDict(extra="forbid")

    error: str


_TOLD: Final[TypeAdapter[SeenPhoto | _Refused]] = TypeAdapter(SeenPhoto | _Refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model to be written to the child: its name, its size, and a function that reads it in pieces."""

    name: str
    size_bytes: int
    pieces: Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was seen, and the photo as a JPEG of at most 1280 px; empty if it was not asked for."""

    photo: SeenPhoto
    jpeg: bytes


class Looker:
    """Looks at one photo after another, each in a new process."""

    def __init__(self, needed: Sequence[str] = tuple(_NEEDED), most_s: float = MOST_S, program: str = _PROGRAM) -> None:
        """`needed` are the packages that `program`, a module, needs; `most_s` is how long a photo may take."""
        self._needed, self._most_s, self._program = needed, most_s, program
        # One at a time, because a photo takes a whole core.
        self._turn = asyncio.Semaphore(1)

    def missing(self) -> str:
        """Why photos cannot be looked at here, in one line; empty if they can."""
        absent = [_NEEDED.get(name, name) for name in self._needed if find_spec(name) is None]
        return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed" if absent else ""

    async def look(self, model: StoredModel, photo: IO[bytes], *, with_picture: bool) -> Looked:
        """Look at the photo in a file, from the file's beginning, when it is its turn.

        Raises:
            PipelineError: Photos cannot be looked at here.
            ImageError: The photo or the model is refused, or the process did not survive it.
            StorageError: The model cannot be read.
        """
        if missing := self.missing():
            raise PipelineError(f"this server cannot look at photos: {missing}")
        asked = {
            "name": model.name,
            "model_bytes": model.size_bytes,
            "most_pixels": MOST_PIXELS,
            "with_picture": with_picture,
        }
        async with self._turn:
            with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as told:
                await asyncio.to_thread(_hand_over, given, canonical_json(asked).encode(), model, photo)
                code = await self._run(given, told)
                told.seek(0)
                return _read(told.readline(_MOST_TOLD_BYTES), told.read(_MOST_TOLD_BYTES), code)

    async def _run(self, given: IO[bytes], told: IO[bytes]) -> int:
        """Run the child; return its exit code.

        Raises:
            ImageError: It took too long.
        """
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        kept = {name: value for name, value in os.environ.items() if name in _KEPT}
        child = await asyncio.create_subprocess_exec(
            # -P and the path make sure that this program's module is run, whatever is in the current folder.
            *(sys.executable, "-P", "-m", self._program),
            stdin=given,
            stdout=told,
            stderr=asyncio.subprocess.DEVNULL,
            env={**kept, "PYTHONPATH": path},
        )
        try:
            return await asyncio.wait_for(child.wait(), self._most_s)
        except TimeoutError as error:
            raise ImageError(f"looking at this photo took more than {self._most_s:g} s") from error
        finally:  # also if the browser has gone or the server ends
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _hand_over(given: IO[bytes], asked: bytes, model: StoredModel, photo: IO[bytes]) -> None:
    """Write what the child reads; it refuses a model with another number of bytes than announced."""
    given.write(asked + b"\n")
    given.writelines(model.pieces())
    photo.seek(0)
    shutil.copyfileobj(photo, given)
    given.seek(0)


def _read(line: bytes, jpeg: bytes, code: int) -> Looked:
    """What the child has answered.

    Raises:
        ImageError: The child has refused the photo or the model, or has died.
    """
    try:
        told: Any = _TOLD.validate_json(line)
    except ValidationError as error:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        raise ImageError(f"looking at this photo ended its process {how}") from error
    if isinstance(told, _Refused):
        raise ImageError(told.error)
    return Looked(photo=told, jpeg=jpeg)
