// Keeps the page up to date: fetches it again and replaces the parts that change.
"use strict";

// Minimum milliseconds between two updates. A slow page is fetched less often, so
// that updates are only a small part of the server's work.
const SOONEST = 2000;
const RATIO = 10;

let silentSince = null;
let timer = null;
let looking = false;

async function refresh() {
  if (looking) return;
  clearTimeout(timer);
  const began = performance.now();
  looking = true;
  if (!document.hidden) await look();
  looking = false;
  timer = setTimeout(refresh, Math.max(SOONEST, RATIO * (performance.now() - began)));
}

async function look() {
  const age = document.getElementById("age");
  try {
    const reply = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    for (const id of ["live", "health", "age"]) {
      const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
      if (old && fresh && !old.isEqualNode(fresh) && !isSelected(old)) replace(old, fresh);
    }
    silentSince = null;
  } catch {
    silentSince ??= new Date();
    if (age) age.textContent = `No answer from the console since ${silentSince.toLocaleTimeString()}`;
  }
}

// Someone may be about to copy this.
function isSelected(part) {
  const selection = getSelection();
  return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

// Replaces a part of the page. The link that had the focus has it again.
function replace(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const path = focused && focused.getAttribute("href");
  old.replaceWith(fresh);
  if (!path) return;
  const links = fresh.matches("a") ? [fresh] : fresh.querySelectorAll("a");
  for (const link of links) {
    if (link.getAttribute("href") === path) return link.focus({ preventScroll: true });
  }
}

timer = setTimeout(refresh, SOONEST);
document.addEventListener("visibilitychange", refresh);
