// Queues: backlog, oldest age, running jobs; pause and resume.

import { announce, button, confirm, h, icon, keyed, meter, name, panel, setText, toast, toastError } from "./dom.js";
import * as f from "./format.js";

// A table of queues, which the overview has, too. `changed` is called after an action.
export function queueTable({ allows, post }, changed) {
  const body = h("tbody");
  const table = h("table", { class: "queues" }, h("thead", null, h("tr", null,
    h("th", { scope: "col" }, "Queue"), h("th", { scope: "col", class: "number" }, "Waiting"), h("th", { scope: "col", class: "number" }, "Oldest"),
    h("th", { scope: "col", class: "number wait", title: "How long a job would wait that is submitted now" }, "Predicted wait"),
    h("th", { scope: "col", class: "number scheduled" }, "Scheduled"), h("th", { scope: "col", class: "number" }, "Running / slots"), h("th", { scope: "col", class: "use" }, h("span", { class: "sr" }, "In use")),
    h("th", { scope: "col" }, "State"), allows("admin") && h("th", { scope: "col" }, h("span", { class: "sr" }, "Actions")))), body);

  async function act(queue, verb) {
    if (verb === "pause") {
      const sure = await confirm(`Pause ${queue.name}?`, `The service starts no more jobs of this queue until it is resumed, also after a restart. ${queue.running === 1 ? "The running job continues." : `${f.count(queue.running)} running jobs continue.`}`, { yes: "Pause", no: "Keep it running" });
      if (!sure) return;
    }
    try {
      await post(`/queues/${encodeURIComponent(queue.name)}/${verb}`);
      toast(verb === "pause" ? `Queue ${queue.name} is paused` : `Queue ${queue.name} runs again`);
      announce(`${queue.name}: ${verb}d`);
      changed();
    } catch (error) {
      toastError(error);
    }
  }

  function create(queue) {
    const link = (status) => `#/jobs?${new URLSearchParams({ queue: queue.name, ...(status && { status }) })}`;
    const cells = { waiting: h("a", { href: link("PENDING") }), oldest: h("span"), wait: h("td", { class: "number wait", data: { label: "wait" } }), scheduled: h("span"), running: h("a", { href: link("PROCESSING") }), use: h("td", { class: "use" }), state: h("td", { class: "state-cell" }), action: h("td", { class: "action" }) };
    const row = h("tr", null, h("th", { scope: "row" }, h("a", { href: link() }, name(queue.name))), h("td", { class: "number", data: { label: "waiting" } }, cells.waiting), h("td", { class: "number", data: { label: "oldest" } }, cells.oldest), cells.wait,
      h("td", { class: "number scheduled", data: { label: "scheduled" } }, cells.scheduled), h("td", { class: "number", data: { label: "running" } }, cells.running), cells.use, cells.state, allows("admin") && cells.action);
    return Object.assign(row, { parts: cells });
  }

  function update({ parts: cells }, queue) {
    setText(cells.waiting, f.count(queue.backlog));
    setText(cells.oldest, queue.oldestAge == null ? f.NONE : f.age(queue.oldestAge));
    setText(cells.scheduled, f.count(queue.scheduled));
    setText(cells.wait, queue.predictedWait == null ? "unknown" : f.rough(queue.predictedWait));
    cells.wait.classList.toggle("faint", queue.predictedWait == null);
    // Jobs that a worker has prefetched count as running, so there may be more than slots.
    setText(cells.running, queue.slots == null ? f.count(queue.running) : `${f.count(queue.running)} / ${f.count(queue.slots)}`);
    cells.use.replaceChildren(...(queue.slots ? [meter(queue.running / queue.slots)] : []));
    const state = queue.paused ? "paused" : queue.served ? "serving" : "unserved";
    if (cells.shown === state) return;
    cells.shown = state;
    cells.state.replaceChildren(h("span", { class: `state ${state}` }, state === "paused" && icon("pause"), state === "unserved" && icon("warning"),
      { paused: "Paused", serving: "Serving", unserved: "No worker" }[state]));
    if (!allows("admin")) return;
    const verb = queue.paused ? "resume" : "pause";
    cells.action.replaceChildren(button(queue.paused ? "Resume" : "Pause", { icon: queue.paused ? "play" : "pause", kind: "small", "aria-label": `${queue.paused ? "Resume" : "Pause"} ${queue.name}`,
      onclick: () => act({ ...queue, running: Number.parseInt(cells.running.textContent.replace(/,/g, ""), 10) || 0 }, verb) }));
  }

  return Object.assign(h("div", { class: "scroller" }, table), { show: (queues) => keyed(body, queues, (queue) => queue.name, create, update) });
}

const jobsWait = (count) => (count >= 1000 ? "1,000 or more jobs wait" : count === 1 ? "1 job waits" : `${f.count(count)} jobs wait`);
const breakerText = (one) => ["Breaker ", h("code", null, name(one.name)), one.state === "closed" ? " has closed" : ` is ${one.state} since ${f.clock(one.since)}`, `: ${jobsWait(one.waiting)}${one.probeAt ? `, next probe at ${f.clock(one.probeAt)}` : ""}.`];
const budgetText = (one) => ["Kind ", h("code", null, name(one.kind)), ` has too many retries: ${jobsWait(one.waiting)} for its budget, ${Math.round(100 * one.ratio)}\u202f% of first attempts.`];

export function show(page) {
  page.title("Queues");
  const reader = { now: () => {} };
  const table = queueTable(page, () => reader.now());
  const box = panel("All queues");
  const quiet = h("p", { class: "quiet", hidden: true }, "There is no queue. A kind makes its queue: register a handler with @app.job(queue=…).");
  box.body.append(table, quiet);
  const waits = h("ul", { class: "warnings", hidden: true, "aria-label": "Breakers and retries that jobs wait for" });
  page.view.append(h("header", { class: "head" }, h("h1", null, "Queues")), waits, box);
  Object.assign(reader, page.refresh(async () => {
    const { queues, breakers, retryBudgets } = await page.get("/queues");
    const found = [...breakers.filter((one) => one.state !== "closed" || one.waiting).map(breakerText), ...retryBudgets.filter((one) => one.waiting).map(budgetText)];
    waits.hidden = !found.length;
    waits.replaceChildren(...found.map((text) => h("li", null, icon("warning"), h("p", null, ...text))));
    table.show(queues);
    table.hidden = !queues.length;
    quiet.hidden = queues.length > 0;
    setText(box.noteElement, queues.length);
  }, 5));
  page.onEnd(page.live.listen(() => reader.soon()));
}
