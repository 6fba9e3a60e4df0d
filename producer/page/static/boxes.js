// What a model has seen, drawn over a picture: boxes, names and scores.

// On the screen, however large the photo.
const LINE_PX = 2;
const LETTER_PX = 14;

const isLight = (colour) => {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.11 * blue + 0.59 * green + 0.3 * red > 110;
};

/**
 * Draw detections.
 *
 * @param {CanvasRenderingContext2D} context Of a canvas that shows the picture in its own pixels.
 * @param {{box: number[], classId: number, label: string, score: number}[]} seen What is drawn.
 * @param {string[]} colours As `#rrggbb`, taken in turn by class ids from 1.
 */
export function drawSeen(context, seen, colours) {
  const scale = context.canvas.width / (context.canvas.clientWidth || context.canvas.width);
  const letter = LETTER_PX * scale;
  context.lineWidth = LINE_PX * scale;
  context.font = `${letter}px system-ui, sans-serif`;
  context.textBaseline = "top";
  // The surest last: its name is the one to be read.
  for (const {box, classId, label, score} of [...seen].reverse()) {
    const [xmin, ymin, xmax, ymax] = box;
    const colour = colours[(classId - 1) % colours.length];
    context.strokeStyle = colour;
    context.strokeRect(xmin, ymin, xmax - xmin, ymax - ymin);
    const text = `${label} ${score.toFixed(2)}`;
    const wide = context.measureText(text).width + letter / 2;
    const left = Math.max(0, Math.min(xmin, context.canvas.width - wide));
    const top = ymin >= letter * 1.3 ? ymin - letter * 1.3 : ymin;
    context.fillStyle = colour;
    context.fillRect(left, top, wide, letter * 1.3);
    context.fillStyle = isLight(colour) ? "#000" : "#fff";
    context.fillText(text, left + letter / 4, top + letter * 0.15);
  }
}
