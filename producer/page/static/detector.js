// A run's own .tflite in the browser, by LiteRT.js on the CPU (XNNPACK in WebAssembly): one picture in, detections out.

import {boxesBack, fit} from "./picture.js";

const PARTS = "/parts/litert";

/** The model of a run, loaded once; `detect` takes a picture at a time. */
export class Detector {
  #litert;
  #model;

  constructor(litert, model, description) {
    this.#litert = litert;
    this.#model = model;
    this.description = description;
  }

  /**
   * Load the runtime and the model, both from this page's server.
   *
   * @param {object} description What the server says of the model: url, labels, image_size, resize, threshold.
   * @param {boolean} threads Whether to use several threads; wants a page that is isolated from other origins.
   */
  static async load(description, threads = globalThis.crossOriginIsolated === true) {
    const litert = await import(`${PARTS}/index.js`);
    try {
      await litert.loadLiteRt(`${PARTS}/wasm/`, {threads});
    } catch (error) {
      if (!threads) throw error;
      // Its threads want relaxed SIMD, which not every browser has.
      await litert.loadLiteRt(`${PARTS}/wasm/`, {threads: false});
    }
    const answer = await fetch(description.url);
    if (!answer.ok) throw new Error(`${description.url}: the server answered ${answer.status}`);
    const model = await litert.loadAndCompile(new Uint8Array(await answer.arrayBuffer()), {accelerator: "wasm"});
    return new Detector(litert, model, description);
  }

  /**
   * All that the model sees in a picture, surest first.
   *
   * @param {ImageData} image RGBA, upright.
   * @returns {Promise<{box: number[], classId: number, label: string, score: number}[]>} boxes (xmin, ymin, xmax, ymax)
   *   in its pixels; class ids from 1.
   */
  async detect(image) {
    const {image_size: size, resize, labels} = this.description;
    const raw = await this.#run(fit(image, size, resize));
    const count = raw.count[0];
    const seen = boxesBack(raw.boxes, count, image.width, image.height, size, resize).map((box, at) => ({
      box,
      classId: raw.classes[at] + 1,
      label: labels[raw.classes[at]],
      score: raw.scores[at],
    }));
    // Of what lies in the gray beside a letterboxed picture nothing is left.
    return seen.filter(({box: [xmin, ymin, xmax, ymax]}) => xmin < xmax && ymin < ymax);
  }

  async #run(square) {
    const size = this.description.image_size;
    const input = new this.#litert.Tensor(this.#asInput(square), [1, size, size, 3]);
    try {
      const outputs = await this.#model.run({image: input});
      return Object.fromEntries(
        Object.entries(outputs).map(([name, tensor]) => {
          // A copy: the tensor's own memory is given back.
          const values = tensor.toTypedArray().slice();
          tensor.delete();
          return [name, values];
        }),
      );
    } finally {
      input.delete();
    }
  }

  // A uint8 input takes raw pixels, its scale is the normalization; a float32 one wants it done.
  #asInput(square) {
    if (this.#model.getInputDetails()[0].dtype === "uint8") return square;
    const {mean, std} = this.description;
    return Float32Array.from(square, (value) => (value - mean) / std);
  }
}
