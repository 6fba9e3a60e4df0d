// The threshold's slider: counts, boxes, the photos of a cell, links and the address follow it at once. Without this the
// form asks the server.

// Browsers refuse an address that changes too often.
const REST_MS = 200;

const form = document.getElementById("threshold");
const slider = form.querySelector("input[type=range]");
const scores = await (await fetch(form.dataset.scores)).json();
const loaded = Number(slider.defaultValue);
const ofCell = document.getElementById("of-cell");
const turns = (ofCell?.dataset.turns ?? "").split(" ").filter(Boolean).map(Number);

const counted = (count) => `${count.toLocaleString("en")} photo${count === 1 ? "" : "s"}`;

// As the server rounds it (`share_text`).
const share = (part, whole) => whole ? `${(Math.floor(1000 * (part / whole) + 0.5) / 10).toFixed(1)} %` : "–";

function tell(row, found, missed, beside, madeUp) {
  const counts = [found, missed, beside, madeUp].map((count) => count.toLocaleString("en"));
  const wrong = beside + madeUp;
  const shares = [[found, found + wrong], [found, found + missed], [2 * found, 2 * found + wrong + missed]];
  [...counts, ...shares.map((pair) => share(...pair))].forEach((text, cell) => {
    row.cells[cell + 1].textContent = text;
  });
}

function showCounts(least) {
  const summed = [0, 0, 0, 0];
  const reaching = (all) => all.filter((score) => score >= least).length;
  document.querySelectorAll("#counts tbody tr").forEach((row, at) => {
    const {objects, right, wrong, beside} = scores[at];
    const [found, near] = [reaching(right), reaching(beside)];
    const counts = [found, objects - found, near, reaching(wrong) - near];
    counts.forEach((count, place) => { summed[place] += count; });
    tell(row, ...counts);
  });
  tell(document.querySelector("#counts tfoot tr"), ...summed);
  const near = scores.flatMap((row) => row.near).filter(([foundBy, score]) => foundBy < least && least <= score);
  document.getElementById("near").textContent = near.length.toLocaleString("en");
}

function showBoxes(least) {
  for (const box of document.querySelectorAll("[data-score]")) {
    box.classList.toggle("off", Number(box.dataset.score) < least);
  }
  for (const box of document.querySelectorAll("svg [data-found-by]")) {
    const foundBy = Number(box.dataset.foundBy);
    box.classList.toggle("off", foundBy > 0 && foundBy >= least);
  }
}

/** The photos of a cell: those that are no longer in it are hidden; those that came into it are at the server. */
function showCell(least) {
  if (!ofCell) return;
  const isIn = (turn, at) => "isMissed" in ofCell.dataset ? turn < at : turn >= at;
  const inside = turns.filter((turn) => isIn(turn, least));
  ofCell.textContent = counted(inside.length);
  for (const photo of document.querySelectorAll("[data-turn]")) photo.hidden = !isIn(Number(photo.dataset.turn), least);
  const more = document.getElementById("more");
  const isNew = inside.filter((turn) => !isIn(turn, loaded)).length;
  more.hidden = !isNew;
  more.textContent = isNew ? `${counted(isNew)} more at this score: press “Show” to see all ${inside.length.toLocaleString("en")}.` : "";
}

/** What leads on from here does so with this threshold, and so does the address. */
function keep(text) {
  const here = new URL(location.href);
  here.searchParams.set("least", text);
  here.searchParams.delete("said");
  history.replaceState(history.state, "", here);
}

function showLinks(text) {
  for (const link of document.querySelectorAll('main a[href*="least="]:not([data-least])')) {
    link.setAttribute("href", link.getAttribute("href").replace(/least=[0-9.]+/, `least=${text}`));
  }
  for (const place of document.querySelectorAll("[data-least-text]")) place.textContent = text;
}

let rest;

function show() {
  const least = Number(slider.value);
  const text = least.toFixed(2);
  form.querySelector("output").textContent = text;
  showCounts(least);
  showBoxes(least);
  showCell(least);
  showLinks(text);
  clearTimeout(rest);
  if (least !== loaded || location.search.includes("least=")) rest = setTimeout(keep, REST_MS, text);
}

slider.addEventListener("input", show);
for (const link of document.querySelectorAll("a[data-least]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    slider.value = link.dataset.least;
    show();
  });
}
show();
form.dataset.isLive = "yes";
