// Keys for the page of an audit's findings: a key presses the button, or follows the link, that names it.

let isLeaving = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, select, textarea")) return;
  const target = document.querySelector(`[data-key~="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!target) return;
  event.preventDefault();
  // A key that is held, or pressed again before the next finding is here, is meant for nothing that can be seen.
  if (event.repeat || isLeaving) return;
  isLeaving = true;
  target.click();
});

// Back from the browser's memory of pages.
addEventListener("pageshow", () => (isLeaving = false));
