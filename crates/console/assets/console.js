// Keeps what is shown up to date: the same page is fetched again, and its
// changing part takes the place of the old one.
"use strict";

const EVERY = 2000;
let silentSince = null;

async function refresh() {
  if (document.hidden) return;
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

setInterval(refresh, EVERY);
document.addEventListener("visibilitychange", refresh);
