// A run's own .tflite on this page's server: a photo is sent there, detections come back.

// As the server takes it.
const MOST_BYTES = 32 * 2 ** 20;

/** Has the shape of `Detector`, for photos only. */
export class ServerDetector {
  #address;
  isAway = true;

  constructor(address, description) {
    this.#address = address;
    this.description = description;
  }

  /**
   * All that the model sees in a photo, surest first.
   *
   * @param {ImageData} image The photo as it is shown.
   * @param {File} file The photo itself.
   * @returns {Promise<{box: number[], classId: number, label: string, score: number}[]>} boxes (xmin, ymin, xmax, ymax)
   *   in pixels of `image`; class ids from 1.
   */
  async detect(image, file) {
    if (file.size > MOST_BYTES) throw new Error(`it has ${(file.size / 2 ** 20).toFixed(0)} MB, 32 are taken`);
    const answer = await fetch(this.#address, {method: "POST", body: file});
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error);
    const [across, down] = [image.width / told.width, image.height / told.height];
    return told.seen.map(({label, class_id: classId, score, box: [xmin, ymin, xmax, ymax]}) => ({
      label,
      classId,
      score,
      box: [xmin * across, ymin * down, xmax * across, ymax * down],
    }));
  }
}
