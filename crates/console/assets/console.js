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
      if (old && fresh && !old.isEqualNode(fresh)) old.replaceWith(fresh);
    }
    silentSince = null;
  } catch {
    silentSince ??= new Date();
    if (age) age.textContent = `No answer from the console since ${silentSince.toLocaleTimeString()}`;
  }
}

timer = setTimeout(refresh, SOONEST);
document.addEventListener("visibilitychange", refresh);
