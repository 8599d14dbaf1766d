// Keeps what is shown up to date: the same page is fetched again, and its
// changing part takes the place of the old one.
"use strict";

// Milliseconds between two looks; a page that takes long to make is asked for
// less often, so that looking is never more than a small part of the work.
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
    if (age) age.textContent = `the console has not answered since ${silentSince.toLocaleTimeString()}`;
  }
}

timer = setTimeout(refresh, SOONEST);
document.addEventListener("visibilitychange", refresh);
