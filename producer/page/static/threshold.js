// The threshold's slider: counts and boxes follow it at once. Without this the form asks the server.

const form = document.getElementById("threshold");
const slider = form.querySelector("input[type=range]");
const scores = await (await fetch(form.dataset.scores)).json();

function show() {
  const least = Number(slider.value);
  form.querySelector("output").textContent = least.toFixed(2);
  const reaching = (all) => all.filter((score) => score >= least).length;
  document.querySelectorAll("#counts tbody tr").forEach((row, at) => {
    const {objects, right, wrong} = scores[at];
    const found = reaching(right);
    [found, objects - found, reaching(wrong)].forEach((count, cell) => {
      row.cells[cell + 1].textContent = count.toLocaleString("en");
    });
  });
  for (const box of document.querySelectorAll("rect[data-score]")) {
    box.classList.toggle("off", Number(box.dataset.score) < least);
  }
  for (const box of document.querySelectorAll("rect[data-found-by]")) {
    const foundBy = Number(box.dataset.foundBy);
    box.classList.toggle("off", foundBy > 0 && foundBy >= least);
  }
}

slider.addEventListener("input", show);
show();
form.dataset.isLive = "yes";
