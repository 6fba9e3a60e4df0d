"""The sets that recipes are chosen on, as VOC folders with a train and a val list; no test photo is in any of them.

`raccoon`, `raccoon-70` and `raccoon-30` are cut from the 160 photos that `--split 70/10/20` of seed 0 does not test on:
50 of them judge, 110, 70 or 30 are learned. `cards` is made up: six ranks of playing cards that differ in fine detail
alone, lying on photos of raccoons; `cards-30`, `cards-900` and `cards-2000` have so many to learn from, `cards-dense`
six times as many small cards on a photo. `bccd` is the set itself; its test list is never read by who trains on train
and judges on val.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import cv2
import numpy as np
from numpy.typing import NDArray

ROOT: Final = Path(__file__).resolve().parents[2]
BCCD: Final = Path(os.environ.get("VOC_BCCD", ROOT.parent / "shared/data/bccd"))
RACCOON: Final = Path(os.environ.get("VOC_RACCOON", ROOT.parent / "shared/data/raccoon"))
_RACCOONS: Final[dict[str, int | None]] = {"raccoon": None, "raccoon-70": 70, "raccoon-30": 30}


@dataclass(frozen=True, slots=True)
class _Cards:
    """How many made-up photos are learned; the bounds of cards on each, and of the length of a card in pixels."""

    learned: int = 296
    count: tuple[int, int] = (1, 3)
    length: tuple[int, int] = (110, 260)


_CARDS: Final = {
    "cards": _Cards(),
    "cards-30": _Cards(learned=30),
    "cards-900": _Cards(learned=900),
    "cards-2000": _Cards(learned=2000),
    "cards-dense": _Cards(count=(8, 16), length=(60, 110)),
}
SETS: Final = (*_RACCOONS, *_CARDS, "bccd")

JUDGES: Final = 50
CARD_JUDGES: Final = 80
RANKS: Final = ("nine", "ten", "jack", "queen", "king", "ace")
_SIGNS: Final = dict(zip(RANKS, ("9", "10", "J", "Q", "K", "A"), strict=True))
_FONTS: Final = (cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX, cv2.FONT_HERSHEY_COMPLEX)


def photo_set(name: str, out: Path, tested: set[str]) -> Path:
    """The folder of a set, made below `out` if it is absent.

    Args:
        name: One of `SETS`.
        out: Where folders are made.
        tested: File names of raccoon's test photos, which are left out.
    """
    if name == "bccd":
        return BCCD
    folder = out / name
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        if name in _CARDS:
            _make_cards(part, _CARDS[name])
        else:
            cut_raccoon(part, _RACCOONS[name], tested)
        part.rename(folder)
    return folder


def cut_raccoon(folder: Path, learned: int | None, tested: set[str], seed: int = 0) -> None:
    """Write a VOC folder of raccoons with a list of those that judge and one of `learned` (None: of all others).

    Args:
        folder: Where; it must be absent.
        learned: How many photos the train list has.
        tested: File names that are left out.
        seed: Draws the train list; the 50 that judge are the same for all seeds.
    """
    photos = sorted(path for path in (RACCOON / "images").iterdir() if path.name not in tested)
    order = np.random.default_rng(0).permutation(len(photos))
    judges, others = order[:JUDGES], order[JUDGES:]
    if seed:
        others = np.random.default_rng(seed).permutation(others)
    lists = {"val": judges, "train": others[:learned]}
    for kind in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / kind).mkdir(parents=True)
    for split, rows in lists.items():
        for row in rows:
            shutil.copy(photos[row], folder / "JPEGImages")
            shutil.copy(RACCOON / "annotations" / f"{photos[row].stem}.xml", folder / "Annotations")
        (folder / "ImageSets/Main" / f"{split}.txt").write_text("".join(f"{photos[row].stem}\n" for row in rows))


def _make_cards(folder: Path, cards: _Cards) -> None:
    for kind in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / kind).mkdir(parents=True)
    grounds = sorted((RACCOON / "images").iterdir())
    random = np.random.default_rng(0)
    for split, count in {"train": cards.learned, "val": CARD_JUDGES}.items():
        stems = [f"{split}-{number:03d}" for number in range(count)]
        for stem in stems:
            photo, objects = _scene(random, grounds, cards)
            cv2.imwrite(str(folder / "JPEGImages" / f"{stem}.jpg"), photo, [cv2.IMWRITE_JPEG_QUALITY, 90])
            (folder / "Annotations" / f"{stem}.xml").write_text(_xml(stem, photo, objects))
        (folder / "ImageSets/Main" / f"{split}.txt").write_text("".join(f"{stem}\n" for stem in stems))


def _scene(
    random: np.random.Generator, grounds: list[Path], cards: _Cards
) -> tuple[NDArray[np.uint8], list[tuple[str, list[int]]]]:
    """A photo with cards on it, and their classes and boxes (xmin, ymin, xmax, ymax) in pixels."""
    ground = np.asarray(cv2.imread(str(grounds[random.integers(len(grounds))])))
    photo: NDArray[np.float64] = cv2.resize(ground, (640, 480), interpolation=cv2.INTER_AREA).astype(np.float64)
    photo = photo * random.uniform(0.35, 0.8) + random.uniform(0, 60, 3)
    taken, objects = np.zeros(photo.shape[:2], bool), []
    for _ in range(random.integers(cards.count[0], cards.count[1] + 1)):
        rank = RANKS[random.integers(len(RANKS))]
        for _ in range(20):
            layer, mask = _laid(_card(random, rank), random, photo.shape[:2], cards.length)
            ys, xs = np.nonzero(mask > 0.5)
            if len(ys) and (taken & (mask > 0.5)).sum() < 0.2 * len(ys):
                break
        else:
            continue
        taken |= mask > 0.5
        photo = photo * (1 - mask[..., None]) + layer * mask[..., None]
        objects.append((rank, [int(xs.min()) + 1, int(ys.min()) + 1, int(xs.max()) + 1, int(ys.max()) + 1]))
    photo = np.asarray(cv2.GaussianBlur(photo, (0, 0), random.uniform(0.4, 1.1)), np.float64) * random.uniform(
        0.7, 1.15
    )
    photo += random.normal(0, 4, photo.shape)
    return np.clip(photo, 0, 255).astype(np.uint8), objects


def _card(random: np.random.Generator, rank: str) -> NDArray[np.uint8]:
    """A card, 240 x 340 pixels: its sign in two corners, and pips or a figure that say little."""
    card = np.full((340, 240, 3), random.integers(225, 256), np.uint8)
    colour = [(30.0, 30.0, 30.0), (40.0, 40.0, 200.0)][random.integers(2)]
    cv2.rectangle(card, (2, 2), (237, 337), (90, 90, 90), 2)
    sign, font = _SIGNS[rank], _FONTS[random.integers(len(_FONTS))]
    scale = 1.9 if len(sign) == 1 else 1.5
    for _ in range(2):
        cv2.putText(card, sign, (12, 66), font, scale, colour, 4, cv2.LINE_AA)
        card = np.ascontiguousarray(card[::-1, ::-1])
    if rank in ("jack", "queen", "king"):
        cv2.rectangle(card, (62, 50), (178, 290), (120, 90, 60), 3)
        for _ in range(9):
            at = (int(random.uniform(75, 165)), int(random.uniform(65, 275)))
            cv2.circle(
                card, at, int(random.uniform(8, 30)), tuple(random.uniform(40, 220, 3).tolist()), -1, cv2.LINE_AA
            )
    else:
        for x, y in _PIPS[rank]:
            cv2.circle(card, (int(240 * x), int(340 * y)), 40 if rank == "ace" else 17, colour, -1, cv2.LINE_AA)
    return card


_COLUMNS: Final = [(x, y) for x in (0.35, 0.65) for y in (0.2, 0.4, 0.6, 0.8)]
_PIPS: Final = {"nine": [*_COLUMNS, (0.5, 0.5)], "ten": [*_COLUMNS, (0.5, 0.3), (0.5, 0.7)], "ace": [(0.5, 0.5)]}


def _laid(
    card: NDArray[np.uint8], random: np.random.Generator, shape: tuple[int, ...], lengths: tuple[int, int]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The card turned, tilted and moved on a canvas of `shape`, and its mask of 0 to 1."""
    height, width = card.shape[:2]
    length = random.uniform(*lengths)
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    angle = np.deg2rad(random.uniform(-50, 50))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    at = np.array([random.uniform(0.2, 0.8) * shape[1], random.uniform(0.25, 0.75) * shape[0]])
    placed = (corners - corners.mean(axis=0)) * length / height @ turn.T + at + random.normal(0, 0.03 * length, (4, 2))
    matrix = cv2.getPerspectiveTransform(corners, placed.astype(np.float32))
    size, whole = (shape[1], shape[0]), np.ones(card.shape[:2], np.float32)
    laid = cv2.warpPerspective(card, matrix, size, flags=cv2.INTER_AREA)
    return laid.astype(np.float32), cv2.warpPerspective(whole, matrix, size).astype(np.float32)


def _xml(stem: str, photo: NDArray[np.uint8], objects: list[tuple[str, list[int]]]) -> str:
    height, width = photo.shape[:2]
    rows = "".join(
        f"<object><name>{escape(name)}</name><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin>"
        f"<xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for name, box in objects
    )
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation><filename>{stem}.jpg</filename>{size}{rows}</annotation>"


def tested_photos(truth: Path) -> set[str]:
    """The file names of a COCO-form ground truth."""
    return {Path(image["file_name"]).name for image in json.loads(truth.read_text())["images"]}
