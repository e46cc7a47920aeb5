// The SQL page: works together with editor.js, and without it. The page also works without scripts.
"use strict";
const area = document.querySelector("textarea[data-schema]");
const replaceText = (text, isWhole) => {
  if (area.replaceText) { area.replaceText(text, isWhole); return; } // set by editor.js
  if (isWhole) area.value = text;
  else area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  area.focus();
};
area.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); area.form.requestSubmit(document.getElementById("run")); }
});

// A click on a table inserts its name at the cursor, unless the editor is empty.
for (const link of all("[data-insert]")) {
  link.addEventListener("click", (event) => {
    if (!area.value.trim()) return;
    event.preventDefault();
    replaceText(link.dataset.insert);
  });
}

// The address of a result can be shared.
const result = document.querySelector("[data-address]");
if (result) history.replaceState(null, "", result.dataset.address);

// "Cancel" stops loading the page, which makes the server stop the query.
const cancel = document.getElementById("cancel");
area.form.addEventListener("submit", (event) => {
  if (event.submitter && event.submitter.name === "format") return;
  showRunning(true);
  remember(area.value);
});
const showRunning = (isRunning, text = "") => { cancel.hidden = !isRunning; document.getElementById("cancelled").textContent = text; };
cancel.addEventListener("click", () => { window.stop(); showRunning(false, "The query was cancelled."); });
addEventListener("pageshow", () => showRunning(false));

// The history and the saved queries stay in this browser.
const KEPT = 50;
const read = (kind) => { try { return JSON.parse(localStorage.getItem(`deltasql-${kind}`)) || []; } catch { return []; } };
const write = (kind, items) => { try { localStorage.setItem(`deltasql-${kind}`, JSON.stringify(items)); } catch { /* the storage is full or disabled */ } show(); };
const remember = (sql) => { if (sql.trim()) write("history", [{ sql, at: new Date().toISOString() }, ...read("history").filter((each) => each.sql !== sql)].slice(0, KEPT)); };
const button = (text, label, act) => {
  const made = document.createElement("button");
  made.type = "button"; made.className = "plain"; made.textContent = text; made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
};
const show = () => {
  for (const list of all("[data-queries]")) {
    const kind = list.dataset.queries;
    const items = read(kind);
    list.replaceChildren(...items.map((each, place) => {
      const row = document.createElement("li");
      const title = each.name || each.sql.replace(/\s+/g, " ").slice(0, 80);
      const open = button(title, `Open the query ${title}`, () => replaceText(each.sql, true));
      open.title = each.sql.slice(0, 2000);
      row.append(open, button("✕", `Remove the query ${title}`, () => write(kind, items.filter((_, other) => other !== place))));
      return row;
    }));
    list.nextElementSibling.hidden = items.length > 0;
  }
};
document.getElementById("save").addEventListener("click", () => {
  const field = document.getElementById("save-name");
  const name = field.value.trim() || area.value.trim().replace(/\s+/g, " ").slice(0, 60);
  if (!area.value.trim()) return;
  write("saved", [{ name, sql: area.value }, ...read("saved").filter((each) => each.name !== name)]);
  field.value = "";
});
show();
