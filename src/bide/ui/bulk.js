// Bulk actions on all jobs that match the filter of the list. The dry run of the service counts them first.

import { announce, button, cut, h, setText, toast, toastError } from "./dom.js";
import * as f from "./format.js";

const ENDED = ["DONE", "PARTIAL_SUCCESS", "ERROR", "CANCELLED"];
const ACTIONS = {
  retry: { word: "Retry", icon: "retry", fits: ["ERROR", "CANCELLED", "PARTIAL_SUCCESS"], which: "failed or cancelled", consequence: "They run again. Each keeps its finished steps and successful children.", no: "Leave them" },
  cancel: { word: "Cancel", icon: "stop", danger: true, fits: Object.keys(f.WORDS).filter((status) => !ENDED.includes(status)), which: "unfinished", consequence: "The service stops them, and cancels their unfinished children.", no: "Keep them running" },
  delete: { word: "Delete", icon: "trash", danger: true, fits: Object.keys(f.WORDS).filter((status) => status !== "PROCESSING"), which: "not running", consequence: "Their records, logs and output files are removed. This cannot be undone.", no: "Keep the jobs" },
};

// The filter of POST /bulk, from the parameters of the list.
export function filterOf(params) {
  const filter = {};
  for (const key of ["q", "kind", "queue", "label", "code", "createdAfter", "createdBefore"]) if (params.get(key)) filter[key] = params.get(key);
  const status = params.getAll("status");
  if (status.length) filter.status = status;
  return filter;
}

const jobs = (count) => `${f.count(count)} ${count === 1 ? "job" : "jobs"}`;

export function bulkButtons({ client }, params, changed) {
  const buttons = Object.entries(ACTIONS).map(([action, { word, icon, danger, fits, which }]) => {
    const element = button(`${word}…`, { icon, kind: `small ${danger ? "danger" : ""}`, onclick: () => run(action) });
    element.check = () => {
      const chosen = params().getAll("status");
      const none = chosen.length > 0 && !chosen.some((status) => fits.includes(status));
      element.disabled = none;
      element.title = none ? `${word} applies to jobs that are ${which}; the filter selects none of them.` : `${word} all jobs that match and are ${which}`;
    };
    return element;
  });
  const box = h("div", { class: "bulk", role: "group", "aria-label": "Actions on all jobs that match" }, h("span", { class: "muted" }, "All that match:"), buttons);
  const send = (body) => client.json("POST", "/bulk", { json: body, retryFor: 0 });

  async function run(action) {
    const filter = filterOf(params());
    try {
      let { count } = await send({ action, filter, dryRun: true });
      if (!count) {
        toast(`No job that matches is ${ACTIONS[action].which}`, { status: "CANCELLED" });
        return;
      }
      for (;;) {
        if (!(await ask(action, count, filter))) return;
        try {
          const job = await send({ action, filter, confirm: count });
          toast(`${{ retry: "Retrying", cancel: "Cancelling", delete: "Deleting" }[action]} ${jobs(count)}`, { href: `#/jobs/${job.jobId}`, link: "Show progress" });
          announce(`${ACTIONS[action].word}: ${jobs(count)}`);
          changed();
          return;
        } catch (error) {
          // Other jobs match by now: count again, and ask again.
          if (error.code !== "not-confirmed") throw error;
          ({ count } = await send({ action, filter, dryRun: true }));
          if (!count) { toast("No job matches any more", { status: "CANCELLED" }); return; }
        }
      }
    } catch (error) {
      toastError(error);
    }
  }
  return Object.assign(box, { check: () => buttons.forEach((one) => one.check()) });
}

// Asks with the exact count. To delete, the count must be typed.
function ask(action, count, filter) {
  const { word, consequence, no, danger } = ACTIONS[action];
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const typed = action === "delete" && h("input", { type: "text", id: "typed", inputmode: "numeric", autocomplete: "off", oninput: () => { yes.disabled = typed.value.trim() !== String(count); } });
    const yes = button(`${word} ${jobs(count)}`, { kind: danger ? "danger" : "primary", onclick: () => close(true) });
    const safe = button(no, { onclick: () => close(false) });
    if (typed) yes.disabled = true;
    const terms = Object.entries(filter).map(([key, value]) => (key === "q" ? value : `${key}:${[value].flat().join(",")}`)).join(" ");
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "question" }, h("h2", { id: "question" }, `${word} ${jobs(count)}?`), h("p", null, consequence),
      h("pre", { class: "terms" }, cut(terms || "all jobs", 600)),
      typed && h("div", { class: "field" }, setText(h("label", { for: "typed" }), `Type ${count} to confirm`), typed),
      h("div", { class: "buttons" }, safe, yes));
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); close(false); });
    document.body.append(dialog);
    dialog.showModal();
    (typed || safe).focus();
  });
}
