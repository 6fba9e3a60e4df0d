// What goes on is shown as it changes: the page is asked for again, and the parts marked data-live are replaced.
// The server answers 304 while nothing has changed. A hidden page does not ask.
const EVERY_MS = 1000;
// A server that is silent for so long is said to be.
const SILENT_MS = 10_000;
const LIVE = "[data-live][id]";

let tag = null;
let answeredAt = Date.now();

/** What an element is, whatever else of it changes. */
function identity(element) {
  const known = ["id", "href", "name", "aria-label"].map((name) => element.getAttribute(name));
  return [element.tagName, ...known, element.closest("form")?.getAttribute("action")].join("\n");
}

const all = (part) => [part, ...part.querySelectorAll("*")];

/** Put `fresh` in the place of `part`; who has the focus inside keeps it, and what is scrolled stays so. */
function replace(part, fresh) {
  const focused = part.contains(document.activeElement) ? identity(document.activeElement) : null;
  const scrolled = all(part).filter((one) => one.scrollLeft).map((one) => [identity(one), one.scrollLeft]);
  part.replaceWith(fresh);
  for (const [known, left] of scrolled) {
    const same = all(fresh).find((one) => identity(one) === known);
    if (same) same.scrollLeft = left;
  }
  if (focused === null) return;
  const same = all(fresh).find((one) => identity(one) === focused);
  (same ?? document.getElementById("main")).focus({preventScroll: true});
}

async function refresh() {
  const headers = tag ? {"If-None-Match": tag} : {};
  const answer = await fetch(location.href, {headers, cache: "no-store", signal: AbortSignal.timeout(SILENT_MS)});
  if (answer.status === 304) return;
  // A store that does not answer, or a job that is gone: what is shown is of before.
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const now = new DOMParser().parseFromString(await answer.text(), "text/html");
  tag = answer.headers.get("ETag");
  const parts = [...document.querySelectorAll(LIVE)];
  if (parts.length !== now.querySelectorAll(LIVE).length) {
    // Another page than before: of a job that could not be read, for one.
    location.reload();
    return;
  }
  for (const part of parts) {
    const fresh = now.getElementById(part.id);
    if (fresh && fresh.innerHTML !== part.innerHTML) replace(part, fresh);
  }
  document.title = now.title;
}

function showSilence() {
  if (document.hidden) answeredAt = Date.now();
  const seconds = Math.floor((Date.now() - answeredAt) / 1000);
  const [line, isSilent] = [document.getElementById("silence"), seconds * 1000 >= SILENT_MS];
  if (line.hidden !== isSilent) return;
  line.textContent = isSilent ? "No answer for 10 s: what is shown may be out of date." : "";
  line.hidden = !isSilent;
}

async function keepFresh() {
  if (!document.hidden && document.querySelector(LIVE)) {
    try {
      await refresh();
      answeredAt = Date.now();
    } catch {
      // The page was stopped, or the network is away: the next question may find it again.
    }
  }
  setTimeout(keepFresh, EVERY_MS);
}

if (document.querySelector(LIVE)) setInterval(showSilence, EVERY_MS);
setTimeout(keepFresh, EVERY_MS);
