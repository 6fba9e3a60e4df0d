// What goes on is shown as it changes: the page is asked for again, and the parts marked data-live are replaced.
// The server answers 304 while nothing has changed. A hidden page does not ask.
const EVERY_MS = 1000;

let tag = null;

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href, {headers: tag ? {"If-None-Match": tag} : {}, cache: "no-store"});
  if (answer.status !== 200) return;
  tag = answer.headers.get("ETag");
  const now = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const fresh = now.getElementById(part.id);
    // Whoever has the focus inside keeps it: replaced are only parts that differ.
    if (fresh && fresh.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) part.replaceWith(fresh);
  }
  document.title = now.title;
}

async function keepFresh() {
  if (document.querySelector("[data-live][id]")) {
    try {
      await refresh();
    } catch {
      // The page was stopped, or the network is away: the next question may find it again.
    }
  }
  setTimeout(keepFresh, EVERY_MS);
}

setTimeout(keepFresh, EVERY_MS);
