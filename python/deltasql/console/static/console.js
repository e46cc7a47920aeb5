// Every page works without this script.
"use strict";
document.documentElement.classList.add("js");

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const isTyping = (node) => node && (node.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName));

// Filter the rows of a table by the text of an input.
const filter = (root) => {
  for (const input of all("[data-filter]", root)) {
    const table = document.querySelector(input.dataset.filter);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      for (const row of all("tbody tr", table)) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { input.value = ""; input.dispatchEvent(new Event("input")); input.blur(); }
      if (event.key === "Enter") {
        const first = all("tbody tr", table).find((row) => !row.hidden);
        if (first) { event.preventDefault(); first.querySelector("a").click(); }
      }
    });
  }
};
filter(document);

// On a narrow screen, scroll the current tab into view.
for (const tab of all(".tabs [aria-current]")) tab.parentElement.scrollLeft = tab.offsetLeft - (tab.parentElement.clientWidth - tab.offsetWidth) / 2;

// Submit a form when a choice changes.
for (const input of all("[data-submit]")) input.addEventListener("change", () => input.form.requestSubmit());

// The slider shows its version while it moves, and loads it when it stops.
for (const slider of all("[data-slider]")) {
  const shown = document.querySelector("[data-version]");
  let timer;
  slider.addEventListener("input", () => {
    shown.textContent = Number(slider.value).toLocaleString("en");
    clearTimeout(timer);
    timer = setTimeout(() => {
      document.getElementById("main").classList.add("is-loading");
      slider.form.requestSubmit();
    }, 450);
  });
}

// A redirect means that the session has ended: reload, so that the page goes to the login form.
const fetchPart = async (address) => {
  const answer = await fetch(address, { credentials: "same-origin" });
  if (answer.redirected) { location.reload(); return new Promise(() => {}); }
  return answer;
};

// Load the figures of large tables after the page.
for (const part of all("[data-load]")) {
  fetchPart(part.dataset.load)
    .then((answer) => (answer.ok ? answer.text() : Promise.reject(answer.status)))
    .then((text) => { part.innerHTML = text; filter(part); })
    .catch(() => { part.querySelector("p").textContent = "The figures could not be computed. Reload the page to try again."; });
}

// Poll a running job until it ends. A page that also shows what the job changes is then loaded again.
for (const part of all("[data-poll]")) {
  const look = async () => {
    try {
      const answer = await fetchPart(part.dataset.poll);
      if (!answer.ok) return;
      part.innerHTML = await answer.text();
    } catch { /* the server may be busy: try again */ }
    if (part.querySelector("[data-state=running]")) setTimeout(look, 700);
    else if ("reload" in part.dataset) location.reload();
  };
  if (part.querySelector("[data-state=running]")) setTimeout(look, 400);
}

// Keys: "/" focuses the filter; "g" and a letter open a page.
const places = { c: "/", t: "/transactions", m: "/mirror", o: "/maintenance", i: "/migration", s: "/sql", a: "/audit", h: "/health" };
let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(document.activeElement)) return;
  if (isGoing && places[event.key]) { location.href = places[event.key]; return; }
  isGoing = event.key === "g";
  const field = all("[data-key]").find((each) => each.dataset.key === event.key);
  if (field) { event.preventDefault(); field.focus(); }
});
