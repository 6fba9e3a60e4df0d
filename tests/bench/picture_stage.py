"""The picture stage against what most scripts do and against its floor: `python tests/bench/picture_stage.py`.

Every ratio is of CPU time in one run: the contenders take turns on the same pictures, and of each picture the best of
its rounds counts. All write the same geometry (letterbox; the square padded with gray) at JPEG quality 95. Pictures are
made up, with texture; BCCD's own where they are (`VOC_BCCD`). Ends with 1 where a target does not hold.
"""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict

sys.path.insert(0, str(Path(__file__).parents[2]))

import cv2
import numpy as np
from PIL import Image

from shared.picture.decoder_warnings import decoder_warnings
from shared.picture.header import read_header
from shared.placement import PADDING_GRAY, place
from shared.specs.data import JobSpec
from worker.picture.encode import decode, resize, store_image

Row = tuple[str, str, str, bool]
MAX_PIXELS: Final = 200_000_000
BCCD: Final = Path(os.environ.get("VOC_BCCD", "../shared/data/bccd")) / "JPEGImages"


class Frame(TypedDict):
    """The pictures of a case: pixels, how many, and how often each is measured."""

    width: int
    height: int
    pictures: int
    rounds: int


SMALL: Final[Frame] = {"width": 640, "height": 480, "pictures": 6, "rounds": 15}
HD: Final[Frame] = {"width": 1920, "height": 1080, "pictures": 4, "rounds": 9}
CAMERA: Final[Frame] = {"width": 4000, "height": 3000, "pictures": 2, "rounds": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A geometry and its targets; None: nothing is asked, the figure is only printed.

    `files` are pictures from disk instead of made-up ones. `missed` names the decision that explains why `times_pil` is
    not reached.
    """

    name: str
    width: int
    height: int
    size: int
    pictures: int
    rounds: int
    resize: str = "letterbox"
    times_pil: float | None = None
    share_of_floor: float | None = None
    missed: str = ""
    files: tuple[Path, ...] = ()

    def contents(self) -> list[bytes]:
        """The picture files."""
        if self.files:
            return [path.read_bytes() for path in self.files]
        return [photo(self.width, self.height, seed) for seed in range(self.pictures)]


CASES: Final = (
    Case(name="640x480 -> 320", size=320, times_pil=5.0, share_of_floor=0.8, missed="docs/decisions/0010", **SMALL),
    Case(name="1080p -> 320", size=320, times_pil=5.0, share_of_floor=0.8, missed="docs/decisions/0010", **HD),
    Case(name="12 MP -> 640", size=640, times_pil=4.0, share_of_floor=0.8, **CAMERA),
    Case(name="1080p -> 640", size=640, **HD),
    Case(name="640x480 -> 320 stretch", size=320, resize="stretch", **SMALL),
    Case(name="1080p -> 320 stretch", size=320, resize="stretch", **HD),
)


def bccd_cases() -> Sequence[Case]:
    """640x480 photographs from a microscope's camera, where they are on this machine."""
    files = tuple(sorted(BCCD.glob("*.jpg"))[:: 364 // SMALL["pictures"]])[: SMALL["pictures"]]
    case = Case(
        name="BCCD, 640x480 -> 320",
        size=320,
        times_pil=5.0,
        share_of_floor=0.8,
        missed="docs/decisions/0010",
        files=files,
        **SMALL,
    )
    return [case] if files else []


PSNR_TARGET_DB: Final = 50.0
# Of lens and demosaicking together; files come out at 1 to 1.7 bits a pixel, as phones write them.
BLUR_PX: Final = 1.4
STRICT_TARGET: Final = 0.15
IMPORT_TARGET_S: Final = 1.0
MEMORY_TARGET_MB: Final = 100.0


def photo(width: int, height: int, seed: int) -> bytes:
    """A JPEG as of a camera: texture at every scale (1/f), edges, a little sensor noise; 4:2:0, quality 92."""
    rng = np.random.default_rng(seed)
    picture = np.full((height, width, 3), 110, np.float32)
    cells = 4
    while cells < width:
        rows = max(2, cells * height // width)
        octave = rng.normal(0, 1, (rows, cells, 1)) + 0.25 * rng.normal(0, 1, (rows, cells, 3))
        amplitude = 60 * (4 / cells) ** 0.55
        picture += amplitude * cv2.resize(octave.astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
        cells *= 2
    for _ in range(40):
        corners = (rng.random((5, 2)) * 0.2 + rng.random((1, 2))) * (width, height)
        shade = np.zeros((height, width), np.uint8)
        cv2.fillPoly(shade, [corners.astype(np.int32)], 1, cv2.LINE_AA)
        picture[shade > 0] += rng.normal(0, 35, 3).astype(np.float32)
    # A lens and a demosaicked sensor leave no edge sharper than this.
    soft = cv2.GaussianBlur(picture, (0, 0), BLUR_PX)
    noise = rng.normal(0, 1, (height, width, 1)).astype(np.float32)
    pixels = np.clip(soft + noise, 0, 255).astype(np.uint8)
    written, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])
    assert written
    return encoded.tobytes()


def ours(content: bytes, spec: JobSpec) -> bytes:
    return store_image(content, read_header(content, max_pixels=MAX_PIXELS), spec).jpeg


def pil_loop(content: bytes, spec: JobSpec) -> bytes:
    """What most scripts do: open, convert, resize, pad, save."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    placement = place(image.width, image.height, spec.image_size, spec.resize)
    resized = image.resize((placement.width, placement.height))
    square = Image.new("RGB", (spec.image_size, spec.image_size), (PADDING_GRAY,) * 3)
    square.paste(resized, (placement.left, placement.top))
    stream = io.BytesIO()
    square.save(stream, "JPEG", quality=95)
    return stream.getvalue()


def best_of(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best CPU seconds of each call; they take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


def floor_calls(content: bytes, spec: JobSpec) -> dict[str, Callable[[], Any]]:
    """Scaled decode alone and encode alone, of the same picture and the same output."""
    header = read_header(content, max_pixels=MAX_PIXELS)
    placement = place(header.width, header.height, spec.image_size, spec.resize)
    flags = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2}
    fitting = [k for k in flags if header.width >= k * placement.width and header.height >= k * placement.height]
    flag = flags[max(fitting)] if fitting else cv2.IMREAD_COLOR
    buffer = np.frombuffer(content, np.uint8)
    output = cv2.imdecode(np.frombuffer(ours(content, spec), np.uint8), cv2.IMREAD_COLOR)
    assert output is not None
    return {
        "decode": lambda: cv2.imdecode(buffer, flag | cv2.IMREAD_IGNORE_ORIENTATION),
        "encode": lambda: cv2.imencode(".jpg", output, [cv2.IMWRITE_JPEG_QUALITY, spec.jpeg_quality]),
    }


def listen() -> None:
    with decoder_warnings():
        pass


def quality_db(content: bytes, spec: JobSpec) -> float:
    """PSNR of our pixels before they are encoded, against full decode and INTER_AREA."""
    header = read_header(content, max_pixels=MAX_PIXELS)
    placement = place(header.width, header.height, spec.image_size, spec.resize)
    target = (placement.width, placement.height)
    full = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert full is not None
    expected = cv2.resize(full, target, interpolation=cv2.INTER_AREA).astype(np.float64)
    found = resize(decode(content, header, target), *target).astype(np.float64)
    return float(10 * np.log10(255**2 / max(float(((found - expected) ** 2).mean()), 1e-6)))


def measure(case: Case) -> list[Row]:
    """Rows of the table: what, found, target, whether it holds."""
    spec = JobSpec.model_validate({"image_size": case.size, "resize": case.resize})
    totals: dict[str, float] = {}
    qualities, sizes = [], []
    for content in case.contents():
        calls = floor_calls(content, spec)
        calls |= {"ours": partial(ours, content, spec), "pil": partial(pil_loop, content, spec), "listen": listen}
        for name, seconds in best_of(calls, case.rounds).items():
            totals[name] = totals.get(name, 0.0) + seconds
        qualities.append(quality_db(content, spec))
        sizes.append(len(content) * 8 / (case.width * case.height))
    times = totals["pil"] / totals["ours"]
    floor = (totals["decode"] + totals["encode"]) / totals["ours"]
    strict = totals["listen"] / totals["ours"]
    quality = float(np.mean(qualities))
    rate = case.pictures / totals["ours"]
    asked, share = case.times_pil, case.share_of_floor
    return [
        (f"{case.name}: images per CPU second", f"{rate:.0f}", f"({np.mean(sizes):.1f} bits a pixel)", True),
        ("  times the PIL loop", f"{times:.2f}", _asked(case, times), not asked or times >= asked or bool(case.missed)),
        (
            "  share of decode + encode alone",
            f"{floor:.2f}",
            f">= {share}" if share else "(none)",
            floor >= (share or 0),
        ),
        ("  cost of hearing damage", f"{strict:.1%}", f"<= {STRICT_TARGET:.0%}", strict <= STRICT_TARGET),
        ("  PSNR to full decode + AREA, dB", f"{quality:.1f}", f">= {PSNR_TARGET_DB:.0f}", quality >= PSNR_TARGET_DB),
    ]


def _asked(case: Case, times: float) -> str:
    if case.times_pil is None:
        return "(none)"
    return f">= {case.times_pil}" + (f", missed: {case.missed}" if case.missed and times < case.times_pil else "")


def measure_start() -> list[Row]:
    """CPU and memory of a fresh process that imported the stage and stored one picture."""
    code = (
        "import sys, time; start = time.process_time()\n"
        "import worker.shard, worker.picture.encode, shared.picture.header, shared.specs.data\n"
        "took = time.process_time() - start\n"
        "import psutil, cv2, numpy as np\n"
        "content = cv2.imencode('.jpg', np.zeros((1080, 1920, 3), np.uint8))[1].tobytes()\n"
        "header = shared.picture.header.read_header(content, max_pixels=10**8)\n"
        "worker.picture.encode.store_image(content, header, shared.specs.data.JobSpec())\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(took, psutil.Process().memory_info().rss / 2**20)\n"
    )
    root = Path(__file__).parents[2]
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=root) for _ in range(3)]
    figures = [tuple(map(float, run.stdout.split())) for run in runs]
    took, memory = min(run[0] for run in figures), min(run[1] for run in figures)
    return [
        ("import of the worker's stage, CPU s", f"{took:.2f}", f"<= {IMPORT_TARGET_S:.0f}", took <= IMPORT_TARGET_S),
        ("  memory after one picture, MB", f"{memory:.0f}", f"<= {MEMORY_TARGET_MB:.0f}", memory <= MEMORY_TARGET_MB),
    ]


def main() -> int:
    cv2.setNumThreads(1)
    print(f"OpenCV {cv2.__version__}, {cv2.getCPUFeaturesLine()}")
    held = True
    calls: list[Callable[[], list[Row]]] = [
        measure_start,
        *(partial(measure, case) for case in (*CASES, *bccd_cases())),
    ]
    for call in calls:
        for what, found, target, holds in call():
            print(f"{what:<44} {found:>9}  {target:<26} {'' if holds else 'MISSED'}".rstrip(), flush=True)
            held = held and holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
