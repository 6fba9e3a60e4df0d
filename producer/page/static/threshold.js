// The threshold's slider: counts and boxes follow it at once. Without this the form asks the server.

const form = document.getElementById("threshold");
const slider = form.querySelector("input[type=range]");
const scores = await (await fetch(form.dataset.scores)).json();
const turns = (document.getElementById("of-cell")?.dataset.turns ?? "").split(" ").filter(Boolean).map(Number);

// As the server rounds it (`share_text`).
const share = (part, whole) => whole ? `${(Math.floor(1000 * (part / whole) + 0.5) / 10).toFixed(1)} %` : "–";

function tell(row, found, missed, wrong) {
  const counts = [found, missed, wrong].map((count) => count.toLocaleString("en"));
  const shares = [[found, found + wrong], [found, found + missed], [2 * found, 2 * found + wrong + missed]];
  [...counts, ...shares.map((pair) => share(...pair))].forEach((text, cell) => {
    row.cells[cell + 1].textContent = text;
  });
}

function show() {
  const least = Number(slider.value);
  form.querySelector("output").textContent = least.toFixed(2);
  const summed = [0, 0, 0];
  const reaching = (all) => all.filter((score) => score >= least).length;
  document.querySelectorAll("#counts tbody tr").forEach((row, at) => {
    const {objects, right, wrong} = scores[at];
    const found = reaching(right);
    const counts = [found, objects - found, reaching(wrong)];
    counts.forEach((count, place) => { summed[place] += count; });
    tell(row, ...counts);
  });
  tell(document.querySelector("#counts tfoot tr"), ...summed);
  const ofCell = document.getElementById("of-cell");
  if (ofCell) {
    const photos = turns.filter((turn) => ("isMissed" in ofCell.dataset ? turn < least : turn >= least)).length;
    ofCell.textContent = `${photos.toLocaleString("en")} photo${photos === 1 ? "" : "s"}`;
  }
  for (const box of document.querySelectorAll("[data-score]")) {
    box.classList.toggle("off", Number(box.dataset.score) < least);
  }
  for (const box of document.querySelectorAll("svg [data-found-by]")) {
    const foundBy = Number(box.dataset.foundBy);
    box.classList.toggle("off", foundBy > 0 && foundBy >= least);
  }
}

slider.addEventListener("input", show);
show();
form.dataset.isLive = "yes";
