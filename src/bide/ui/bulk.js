// Actions on selected jobs, or on all jobs that match the filter of the list. The dry run of the service counts them first.

import { announce, button, cut, h, setText, toast, toastError } from "./dom.js";
import * as f from "./format.js";

const ALL = Object.keys(f.WORDS);
const ACTIONS = {
  retry: { word: "Retry", doing: "Retrying", icon: "retry", fits: ["ERROR", "CANCELLED", "PARTIAL_SUCCESS"], which: "failed or cancelled", consequence: "They run again. Each keeps its finished steps and successful children.", no: "Leave them" },
  priority: { word: "Set the priority of", doing: "Setting the priority of", button: "Priority", icon: "priority", fits: ["UPLOADING", "PENDING", "RETRYING"], which: "waiting", consequence: "Jobs with a higher priority start first.", no: "Leave them" },
  cancel: { word: "Cancel", doing: "Cancelling", icon: "stop", danger: true, fits: ALL.filter((status) => !f.TERMINAL.has(status)), which: "unfinished", consequence: "The service stops them, and cancels their unfinished children.", no: "Keep them running" },
  delete: { word: "Delete", doing: "Deleting", icon: "trash", danger: true, fits: ALL.filter((status) => status !== "PROCESSING"), which: "not running", consequence: "Their records, logs and output files are removed. This cannot be undone.", no: "Keep the jobs" },
};

// The filter of POST /bulk, from the parameters of the list.
function filterOf(params) {
  const filter = {};
  for (const key of ["q", "kind", "queue", "label", "code", "createdAfter", "createdBefore"]) if (params.get(key)) filter[key] = params.get(key);
  const status = params.getAll("status");
  if (status.length) filter.status = status;
  return filter;
}

const jobs = (count) => `${f.count(count)} ${count === 1 ? "job" : "jobs"}`;

// The bar that floats over the list while something is selected. `selected`: the chosen jobs by id. `changed` is called after
// an action, `cleared` when the selection has ended.
export function bulkBar({ post }, { params, selected, changed, cleared }) {
  let all = null; // all that match: the count, and when they were counted
  const title = h("b");
  const note = h("span", { class: "faint" });
  const other = h("button", { type: "button", class: "link" });
  const buttons = Object.entries(ACTIONS).map(([action, { word, button: short, icon, danger }]) =>
    Object.assign(button(`${short ?? word}…`, { icon, kind: danger ? "danger" : "", onclick: () => run(action) }), { action }));
  const close = button("", { icon: "close", kind: "bare", "aria-label": "Clear the selection", title: "Clear the selection (Esc)", onclick: () => clear() });
  const bar = h("div", { class: "bulk", role: "region", "aria-label": "Selected jobs", hidden: true }, h("div", { class: "which" }, title, h("span", null, note, other)), h("div", { class: "actions" }, buttons, close));
  const send = (body) => post("/bulk", body);

  function draw() {
    bar.hidden = !selected.size && !all;
    if (bar.hidden) return;
    setText(title, all ? `All ${f.count(all.count)} that match` : `${jobs(selected.size)} selected`);
    setText(note, all ? `counted at ${f.clock(all.at)} · ` : "");
    setText(other, all ? (selected.size ? `select only these ${selected.size}` : "select none") : "Select all that match");
    const found = all ? params().getAll("status") : [...new Set([...selected.values()].map((job) => job.status))];
    for (const element of buttons) {
      const { button: short, word, fits, which } = ACTIONS[element.action];
      const none = found.length > 0 && !found.some((status) => fits.includes(status));
      element.disabled = none;
      element.title = none ? `${short ?? word} applies to jobs that are ${which}; none of the selected ones is.` : "";
    }
  }

  function clear() {
    all = null;
    selected.clear();
    draw();
    cleared();
  }

  // No action applies to every status, so the jobs are counted in two parts.
  async function count() {
    const filter = filterOf(params());
    const wanted = filter.status ?? ALL;
    const part = (action, status) => (status.length ? send({ action, filter: { ...filter, status }, dryRun: true }) : { count: 0 });
    const parts = await Promise.all([part("delete", wanted.filter((status) => status !== "PROCESSING")), part("cancel", wanted.filter((status) => status === "PROCESSING"))]);
    return parts.reduce((sum, { count: number }) => sum + number, 0);
  }

  other.addEventListener("click", async () => {
    if (all) {
      all = null;
    } else {
      other.disabled = true;
      try {
        all = { count: await count(), at: Date.now() };
        announce(`All ${f.count(all.count)} jobs that match are selected`);
      } catch (error) {
        toastError(error);
      }
      other.disabled = false;
    }
    draw();
    cleared();
  });

  async function run(action) {
    const filter = all ? filterOf(params()) : { id: [...selected.keys()] };
    const chosen = all ? all.count : selected.size;
    const { which, word, doing } = ACTIONS[action];
    try {
      let { count: number } = await send({ action, filter, dryRun: true, ...(action === "priority" && { priority: 0 }) });
      for (;;) {
        if (!number) {
          toast(`None of the selected jobs is ${which}`, { status: "CANCELLED" });
          return;
        }
        const answer = await ask(action, number, chosen, filter);
        if (!answer) return;
        try {
          const job = await send({ action, filter, confirm: number, ...answer });
          toast(`${doing} ${jobs(number)}`, { href: `#/jobs/${job.jobId}`, link: "Show progress" });
          announce(`${word} ${jobs(number)}`);
          clear();
          changed();
          return;
        } catch (error) {
          // Other jobs match by now: count again, and ask again.
          if (error.code !== "not-confirmed") throw error;
          ({ count: number } = await send({ action, filter, dryRun: true, ...(action === "priority" && { priority: 0 }) }));
        }
      }
    } catch (error) {
      toastError(error);
    }
  }

  return Object.assign(bar, { draw, clear, all: () => all !== null });
}

// Asks with the exact count. To delete, the count must be typed. Resolves with more fields of the request, or with null.
function ask(action, count, chosen, filter) {
  const { word, consequence, no, danger, which } = ACTIONS[action];
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const typed = action === "delete" && h("input", { type: "text", id: "typed", inputmode: "numeric", autocomplete: "off", oninput: () => { yes.disabled = typed.value.trim() !== String(count); } });
    const priority = action === "priority" && h("input", { type: "number", id: "typed", min: -1000, max: 1000, step: 1, value: "0", oninput: () => { yes.disabled = !priority.value || !priority.validity.valid; } });
    const input = typed || priority;
    const accept = () => yes.disabled || close(priority ? { priority: Number(priority.value) } : {});
    const yes = button(`${word} ${jobs(count)}`, { kind: danger ? "danger" : "primary", onclick: accept });
    const safe = button(no, { onclick: () => close(null) });
    if (typed) yes.disabled = true;
    if (input) input.addEventListener("keydown", (event) => { if (event.key === "Enter") accept(); });
    const terms = filter.id ? "" : Object.entries(filter).map(([key, value]) => (key === "q" ? value : `${key}:${[value].flat().join(",")}`)).join(" ") || "all jobs";
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "question" }, h("h2", { id: "question" }, `${word} ${jobs(count)}?`),
      h("p", null, count < chosen && `${f.count(count)} of the ${f.count(chosen)} selected jobs ${count === 1 ? "is" : "are"} ${which}. `, consequence),
      terms && h("pre", { class: "terms" }, cut(terms, 600)),
      input && h("div", { class: "field" }, setText(h("label", { for: "typed" }), typed ? `Type ${count} to confirm` : "Priority, −1000 to 1000"), input),
      h("div", { class: "buttons" }, safe, yes));
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); close(null); });
    document.body.append(dialog);
    dialog.showModal();
    (input || safe).focus();
  });
}
