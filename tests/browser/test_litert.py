"""Both forms of a model in a real Chromium, by LiteRT.js and the decoder of docs/runtimes.md: what LiteRT sees."""

from pathlib import Path

import numpy as np
import pytest

from tests.browser.chromium import find_chromium
from tests.browser.litert import NODE_MODULES, detect_in_browser, litert_page
from tests.unit.trainer.exported import make_exported
from trainer.inference.detector import Detector

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

# One step of int8: other kernels, of WebAssembly, round in another way.
SCORE, PIXELS = {"int8": 1 / 256 + 1e-4, "float32": 1e-3, "float16": 1e-3, "dynamic": 0.02}, 0.5


def test_the_browser_sees_with_and_without_suppression_what_litert_sees(tmp_path: Path) -> None:
    executable = find_chromium()
    if executable is None or not (NODE_MODULES / "@litertjs/core").is_dir():
        pytest.skip("needs Chromium and LiteRT.js (VOC_LITERTJS)")
    exported = make_exported()
    pictures = [picture.rgb for picture in exported.pictures]
    with litert_page(executable, tmp_path) as page:
        for form in SCORE:
            wanted = [Detector(exported.forms[form]).detect_stored(picture) for picture in pictures]
            files = {form: exported.forms[form]} | ({} if form == "int8" else {f"{form}_raw": exported.raw[form]})
            for name, model in files.items():
                seen, times = detect_in_browser(page, tmp_path, name, model, pictures)
                assert all(ms > 0 for ms in times)
                for theirs, ours in zip(seen, wanted, strict=True):
                    clear = ours.above(0.1)
                    near = np.abs(clear.boxes[:, None] - theirs.boxes[None]).max(axis=2) <= PIXELS
                    near &= clear.class_ids[:, None] == theirs.class_ids[None]
                    near &= np.abs(clear.scores[:, None] - theirs.scores[None]) <= SCORE[form]
                    assert clear.scores.size > 5
                    assert near.any(axis=1).all(), name
        # docs/runtimes.md sends browsers to another form for this. When it passes, the page may offer int8_raw.
        with pytest.raises(RuntimeError, match="Element type INT8 is not supported"):
            detect_in_browser(page, tmp_path, "int8_raw", exported.raw["int8"], pictures[:1])
