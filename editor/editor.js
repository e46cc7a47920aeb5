// The SQL editor of the console: replaces the text area of the page, which stays part of the form.
// The editor is in a shadow root, where CodeMirror adds its styles without a <style> element, which
// the content security policy forbids.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { PostgreSQL, sql } from "@codemirror/lang-sql";
import { HighlightStyle, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { EditorView, drawSelection, keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const theme = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--paper)", border: "1px solid var(--edge-strong)", borderRadius: "8px", fontSize: "0.92rem", minHeight: "14em" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", padding: "8px 4px", maxHeight: "60vh" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft)" },
  ".cm-placeholder": { color: "var(--faint)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--edge-strong)", borderRadius: "8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--ink)" },
});
const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--warn)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--info)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
]);

const create = (area) => {
  const language = new Compartment();
  const configured = (schema) => sql({ dialect: PostgreSQL, schema, upperCaseKeywords: true });
  const host = document.createElement("div");
  area.before(host);
  const root = host.attachShadow({ mode: "open" });
  const run = () => { area.form.requestSubmit(area.form.querySelector("button:not([name]):not([type=button])")); return true; };
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
        history(), drawSelection(), bracketMatching(), closeBrackets(), autocompletion(), EditorView.lineWrapping,
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
        language.of(configured({})), syntaxHighlighting(colours), theme, placeholder(area.placeholder),
        EditorView.contentAttributes.of({ "aria-label": "Query", autocapitalize: "off", spellcheck: "false" }),
        EditorView.updateListener.of((update) => { if (update.docChanged) area.value = update.state.doc.toString(); }),
      ],
    }),
  });
  area.hidden = true;
  if (area.autofocus) view.focus();
  area.replaceText = (text, isWhole) => {
    const { from, to } = isWhole ? { from: 0, to: view.state.doc.length } : view.state.selection.main;
    view.dispatch({ changes: { from, to, insert: text }, selection: { anchor: from + text.length }, scrollIntoView: true });
    view.focus();
  };
  // Tables and columns for completion; without them the editor still works.
  fetch(area.dataset.schema, { credentials: "same-origin" })
    .then((answer) => (answer.ok && !answer.redirected ? answer.json() : {}))
    .then((schema) => view.dispatch({ effects: language.reconfigure(configured(schema)) }))
    .catch(() => {});
};

for (const area of document.querySelectorAll("textarea[data-schema]")) create(area);
