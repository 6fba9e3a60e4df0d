"""Models in a real Chromium, by LiteRT.js (WebAssembly): detections and milliseconds of every picture.

Files without suppression are decoded by the JavaScript of docs/runtimes.md, as it stands there. `VOC_LITERTJS` names a
`node_modules` with `@litertjs/core` and `@litertjs/wasm-utils`; default: that of the page.
"""

import functools
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from shared.model.description import read_description
from tests.browser.chromium import Page, chromium
from trainer.detections import Detections
from trainer.pixels import Picture, as_input

ROOT = Path(__file__).resolve().parents[2]
NODE_MODULES = Path(os.environ.get("VOC_LITERTJS", ROOT / "producer/page/npm/node_modules"))
PAGE = """<!doctype html><title>LiteRT.js</title>
<script type="importmap">
{"imports": {"@litertjs/wasm-utils": "/modules/@litertjs/wasm-utils/dist/index.js"}}
</script>
<script type="module">
import * as litert from "/modules/@litertjs/core/dist/index.js";
import {decode} from "/decode.mjs";
const kinds = {uint8: Uint8Array, int8: Int8Array, float32: Float32Array};

async function detect(asked) {
  const file = await (await fetch(asked.model)).arrayBuffer();
  const model = await litert.loadAndCompile(new Uint8Array(file), {accelerator: "wasm"});
  const found = [];
  for (let place = 0; place < asked.pictures; place++) {
    const bytes = await (await fetch(`${asked.folder}/${place}.bin`)).arrayBuffer();
    const image = new litert.Tensor(new kinds[asked.dtype](bytes), [1, asked.side, asked.side, 3]);
    const start = performance.now();
    const outputs = await model.run({image});
    const ms = performance.now() - start;
    found.push({ms, ...seen(outputs, asked)});
    image.delete();
    Object.values(outputs).forEach((tensor) => tensor.delete());
  }
  return JSON.stringify(found);
}

function seen(outputs, asked) {
  const plain = Object.fromEntries(Object.entries(outputs).map(([name, tensor]) => {
    const [scale, zero] = asked.scales[name];
    const values = tensor.toTypedArray();
    return [name, scale ? Float32Array.from(values, (value) => (value - zero) * scale) : values.slice()];
  }));
  if (asked.how) {
    const start = performance.now();
    const rows = decode(plain.boxes, plain.scores, asked.how, asked.side);
    return {decodeMs: performance.now() - start, rows: rows.map(({box, label, score}) => [...box, label, score])};
  }
  const rows = [];
  for (let place = 0; place < plain.count[0]; place++) {
    const [ymin, xmin, ymax, xmax] = plain.boxes.subarray(4 * place, 4 * place + 4).map((value) => value * asked.side);
    rows.push([xmin, ymin, xmax, ymax, plain.classes[place], plain.scores[place]]);
  }
  return {decodeMs: 0, rows};
}

await litert.loadLiteRt("/modules/@litertjs/core/wasm/");
globalThis.detect = detect;
globalThis.isReady = true;
</script>"""


class _Quiet(SimpleHTTPRequestHandler):
    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """JavaScript's modules and WebAssembly by their own types, which the browser insists on."""
        types = {".mjs": "text/javascript", ".wasm": "application/wasm"}
        return types.get(Path(path).suffix) or super().guess_type(path)

    def log_message(self, format: str, *args: Any) -> None:
        """Not a word."""


@contextmanager
def litert_page(executable: str, folder: Path) -> Iterator[Page]:
    """A page with LiteRT.js loaded from a server of this process over `folder`."""
    decoder = re.search(r"```javascript\n(.*?)```", (ROOT / "docs/runtimes.md").read_text(), re.S)
    assert decoder is not None
    (folder / "decode.mjs").write_text(decoder[1])
    (folder / "index.html").write_text(PAGE)
    if not (folder / "modules").exists():
        (folder / "modules").symlink_to(NODE_MODULES.resolve())
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with chromium(executable, folder / "profile") as page:
            page.call("Page.navigate", url=f"http://127.0.0.1:{server.server_port}/index.html")
            ready = (
                "new Promise(go => {const look = () => globalThis.isReady ? go(true) : setTimeout(look, 20); look()})"
            )
            page.evaluate(ready)
            yield page
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def detect_in_browser(
    page: Page, folder: Path, name: str, model: bytes, pictures: Sequence[Picture]
) -> tuple[list[Detections], list[float]]:
    """Detections of stored pictures, boxes in their pixels, and milliseconds of each with decoding."""
    ends = Interpreter(model_content=model)
    dtype = ends.get_input_details()[0]["dtype"]
    signature: Mapping[str, Any] = ends.get_signature_runner().get_output_details()
    description = read_description(model)
    (folder / f"{name}.tflite").write_bytes(model)
    (folder / name).mkdir(exist_ok=True)
    for place, picture in enumerate(pictures):
        (folder / name / f"{place}.bin").write_bytes(as_input(picture, dtype).tobytes())
    asked = {
        "model": f"/{name}.tflite",
        "folder": f"/{name}",
        "dtype": np.dtype(dtype).name,
        "side": description.image_size,
        "pictures": len(pictures),
        "how": None if description.decoding is None else asdict(description.decoding),
        "scales": {key: [float(part) for part in detail["quantization"]] for key, detail in signature.items()},
    }
    rows = json.loads(page.evaluate(f"detect({json.dumps(asked)})"))
    return [as_detections(row["rows"]) for row in rows], [row["ms"] + row["decodeMs"] for row in rows]


def as_detections(rows: Sequence[Sequence[float]]) -> Detections:
    """Rows of xmin, ymin, xmax, ymax, label from 0, score, best first."""
    table = np.asarray(rows, np.float32).reshape(-1, 6)
    return Detections(boxes=table[:, :4], class_ids=table[:, 4].astype(np.int64) + 1, scores=table[:, 5])
