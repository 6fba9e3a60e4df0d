// Pixels of a photo -> the square that the model takes, and its boxes back: shared/placement.py and OpenCV's resize
// (`fit` of trainer/inference/detector.py) once more, since a canvas shrinks pictures by another rule than the one the
// model learned from.

const PADDING_GRAY = 114;

// Python's round(): halves go to the even neighbour.
function roundHalfEven(value) {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 === 0 ? below : below + 1;
}

/** Where an upright picture of width x height lies in the square of `size` px; see shared/placement.py. */
export function place(width, height, size, resize) {
  let innerWidth = size;
  let innerHeight = size;
  if (resize === "letterbox") {
    const scale = size / Math.max(width, height);
    innerWidth = Math.max(1, roundHalfEven(width * scale));
    innerHeight = Math.max(1, roundHalfEven(height * scale));
  }
  return {
    width: innerWidth,
    height: innerHeight,
    left: Math.floor((size - innerWidth) / 2),
    top: Math.floor((size - innerHeight) / 2),
    scaleX: innerWidth / width,
    scaleY: innerHeight / height,
  };
}

// INTER_AREA where no side grows (OpenCV's computeResizeAreaTab): of each target pixel the first source pixel, and
// the weights from there on; 1 each where the sum is divided later.
function areaTaps(source, target, isWhole) {
  const scale = source / target;
  if (isWhole) {
    const weights = new Float32Array(scale).fill(1);
    return Array.from({length: target}, (_, at) => ({start: at * scale, weights}));
  }
  return Array.from({length: target}, (_, at) => {
    const from = at * scale;
    const until = from + scale;
    const cell = Math.min(scale, source - from);
    const last = Math.min(Math.floor(until), source - 1);
    const first = Math.min(Math.ceil(from), last);
    const weights = [];
    if (first - from > 1e-3) weights.push((first - from) / cell);
    const start = first - weights.length;
    for (let pixel = first; pixel < last; pixel += 1) weights.push(1 / cell);
    if (until - last > 1e-3) weights.push(Math.min(until - last, 1, cell) / cell);
    return {start, weights: Float32Array.from(weights)};
  });
}

// One source row, RGBA bytes from `offset` on, as target pixels of RGB; in the single precision that OpenCV has here.
function shrinkRow(pixels, offset, columns, row) {
  const single = Math.fround;
  let out = 0;
  for (const {start, weights} of columns) {
    let at = offset + start * 4;
    let red = 0;
    let green = 0;
    let blue = 0;
    for (const weight of weights) {
      red = single(red + single(pixels[at] * weight));
      green = single(green + single(pixels[at + 1] * weight));
      blue = single(blue + single(pixels[at + 2] * weight));
      at += 4;
    }
    row[out] = red;
    row[out + 1] = green;
    row[out + 2] = blue;
    out += 3;
  }
}

function shrink(image, width, height, put) {
  const [across, down] = [image.width / width, image.height / height];
  // Whole parts are added up and divided once; halves of both sides have a rounding of their own.
  const isWhole = Number.isInteger(across) && Number.isInteger(down);
  const part = isWhole ? Math.fround(1 / (across * down)) : 1;
  const round = across === 2 && down === 2 ? Math.round : roundHalfEven;
  const columns = areaTaps(image.width, width, isWhole);
  const row = new Float32Array(width * 3);
  const sum = new Float64Array(width * 3);
  let shrunk = -1;
  areaTaps(image.height, height, isWhole).forEach(({start, weights}, line) => {
    sum.fill(0);
    weights.forEach((weight, at) => {
      // The last source row of a line is often the first one of the next.
      if (shrunk !== start + at) shrinkRow(image.data, (start + at) * image.width * 4, columns, row);
      shrunk = start + at;
      for (let value = 0; value < sum.length; value += 1) {
        sum[value] = Math.fround(sum[value] + Math.fround(weight * row[value]));
      }
    });
    put(line, Uint8Array.from(sum, (value) => round(Math.fround(value * part))));
  });
}

// The picture made small, RGBA as it came.
function shrunk(image, width, height) {
  const data = new Uint8ClampedArray(width * height * 4);
  shrink(image, width, height, (line, row) => {
    for (let at = 0; at < width; at += 1) data.set(row.subarray(at * 3, at * 3 + 3), (line * width + at) * 4);
  });
  return {width, height, data};
}

// INTER_LINEAR, in OpenCV's whole numbers: weights are parts of 2048 (INTER_RESIZE_COEF_SCALE).
function linearTaps(source, target) {
  const scale = source / target;
  const parts = (weight) => roundHalfEven(Math.fround(weight) * 2048);
  return Array.from({length: target}, (_, at) => {
    const centre = Math.fround((at + 0.5) * scale - 0.5);
    const start = Math.floor(centre);
    const weight = centre - start;
    return {start, near: parts(1 - weight), far: parts(weight)};
  });
}

function linearRow(pixels, offset, columns, most, row) {
  let out = 0;
  for (const {start, near, far} of columns) {
    const isInside = start >= 0 && start < most;
    const from = offset + Math.min(Math.max(start, 0), most) * 4;
    for (let channel = 0; channel < 3; channel += 1) {
      const at = from + channel;
      row[out] = isInside ? pixels[at] * near + pixels[at + 4] * far : pixels[at] * 2048;
      out += 1;
    }
  }
}

function interpolate(image, width, height, put) {
  const columns = linearTaps(image.width, width);
  const [upper, lower] = [new Int32Array(width * 3), new Int32Array(width * 3)];
  const target = new Uint8Array(width * 3);
  linearTaps(image.height, height).forEach(({start, near, far}, line) => {
    [[start, upper], [start + 1, lower]].forEach(([source, row]) => {
      const inside = Math.min(Math.max(source, 0), image.height - 1);
      linearRow(image.data, inside * image.width * 4, columns, image.width - 1, row);
    });
    for (let value = 0; value < target.length; value += 1) {
      const [above, below] = [near * (upper[value] >> 4), far * (lower[value] >> 4)];
      target[value] = ((above >> 16) + (below >> 16) + 2) >> 2;
    }
    put(line, target);
  });
}

/**
 * A picture as the model takes it.
 *
 * @param {ImageData} image RGBA, upright; alpha is not looked at.
 * @param {number} size Side of the model's square in pixels.
 * @param {"stretch"|"letterbox"} resize How it comes into the square.
 * @returns {Uint8Array} RGB, size x size x 3.
 */
export function fit(image, size, resize) {
  const placed = place(image.width, image.height, size, resize);
  const square = new Uint8Array(size * size * 3).fill(PADDING_GRAY);
  const put = (line, row) => square.set(row, ((placed.top + line) * size + placed.left) * 3);
  // INTER_AREA averages only where no side grows: first what shrinks.
  const [width, height] = [Math.min(placed.width, image.width), Math.min(placed.height, image.height)];
  const shrinks = width < image.width || height < image.height;
  const grows = placed.width > width || placed.height > height;
  if (shrinks && !grows) shrink(image, width, height, put);
  else interpolate(shrinks ? shrunk(image, width, height) : image, placed.width, placed.height, put);
  return square;
}

/**
 * Boxes of the model as boxes of the photo.
 *
 * @param {Float32Array} boxes (ymin, xmin, ymax, xmax) of each, in parts of the square.
 * @param {number} count How many of them count.
 * @returns {number[][]} (xmin, ymin, xmax, ymax) in pixels of the photo, inside of it.
 */
export function boxesBack(boxes, count, width, height, size, resize) {
  const placed = place(width, height, size, resize);
  const clip = (value, most) => Math.min(Math.max(value, 0), most);
  const across = (part) => clip((clip(part * size, size) - placed.left) / placed.scaleX, width);
  const down = (part) => clip((clip(part * size, size) - placed.top) / placed.scaleY, height);
  return Array.from({length: count}, (_, at) => {
    const [ymin, xmin, ymax, xmax] = boxes.subarray(at * 4, at * 4 + 4);
    return [across(xmin), down(ymin), across(xmax), down(ymax)];
  });
}
