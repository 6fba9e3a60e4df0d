"""Pictures, detections and files that tests of detection make."""

from pathlib import Path

import cv2
import numpy as np

from trainer.detections import Detections


def picture(height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(height * width)
    return cv2.resize(rng.integers(0, 255, (6, 8, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)


def seen(*boxes: tuple[float, float, float, float]) -> Detections:
    count = len(boxes)
    return Detections(
        boxes=np.asarray(boxes, np.float32).reshape(-1, 4),
        class_ids=np.arange(1, count + 1),
        scores=np.linspace(0.9, 0.5, count, dtype=np.float32),
    )


def clip(path: Path, frames_shown: int = 7, fps: float = 12.5) -> Path:
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), fps, (64, 48))
    for _ in range(frames_shown):
        video.write(picture(48, 64))
    video.release()
    return path
