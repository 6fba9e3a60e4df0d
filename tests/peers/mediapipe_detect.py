"""Runs in MediaPipe's own environment: a model and pictures in, detections as COCO-form JSON on standard output.

The last line of standard error has the median milliseconds of a picture.
Usage: python mediapipe_detect.py MODEL.tflite PICTURE...; imports nothing of this project.
"""

import json
import statistics
import sys
import time

import mediapipe
from mediapipe.tasks.python import BaseOptions, vision


def main(model: str, pictures: list[str]) -> None:
    options = vision.ObjectDetectorOptions(
        base_options=BaseOptions(model_asset_path=model), score_threshold=0.01, max_results=-1
    )
    rows, times = [], []
    with vision.ObjectDetector.create_from_options(options) as detector:
        for image_id, picture in enumerate(pictures):
            image = mediapipe.Image.create_from_file(picture)
            start = time.perf_counter()
            found = detector.detect(image).detections
            times.append((time.perf_counter() - start) * 1000)
            for seen in found:
                box = seen.bounding_box
                # Detections of one and the same box are merged into one of several categories.
                rows += [
                    {
                        "image_id": image_id,
                        "label": category.category_name,
                        "score": category.score,
                        "bbox": [box.origin_x, box.origin_y, box.width, box.height],
                    }
                    for category in seen.categories
                ]
    json.dump(rows, sys.stdout)
    sys.stderr.write(f"{statistics.median(times):.3f}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
