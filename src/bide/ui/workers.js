// Workers: the handler processes and what they run.

import { ago, h, keyed, name, panel, setText } from "./dom.js";
import * as f from "./format.js";

const WORDS = { starting: "Starting", idle: "Idle", busy: "Busy" };

export function show(page) {
  page.title("Workers");
  const box = panel("Handler processes");
  const body = h("tbody");
  const table = h("div", { class: "scroller" }, h("table", null, h("thead", null, h("tr", null,
    h("th", { scope: "col" }, "Worker"), h("th", { scope: "col" }, "State"), h("th", { scope: "col" }, "Runs"), h("th", { scope: "col" }, "Jobs now"),
    h("th", { scope: "col", class: "number" }, "Jobs done"), h("th", { scope: "col", class: "number" }, "Process"), h("th", { scope: "col", class: "number" }, "Started"))), body));
  const quiet = h("p", { class: "quiet", hidden: true }, "No worker is alive. Start one: with the embedded engine, bide serve does; with Celery, run bide worker MODULE:app.");
  box.body.append(table, quiet);
  page.view.append(h("header", { class: "head" }, h("h1", null, "Workers")), box);
  const create = (worker) => {
    const cells = { state: h("span"), jobs: h("td"), done: h("td", { class: "number" }), pid: h("td", { class: "number" }), started: h("td", { class: "number" }) };
    return Object.assign(h("tr", null, h("th", { scope: "row" }, name(worker.name)), h("td", null, cells.state), h("td", null, worker.runs), cells.jobs, cells.done, cells.pid, cells.started), { parts: cells });
  };
  const update = ({ parts: cells }, worker) => {
    cells.state.className = `status s-${{ busy: "PROCESSING", idle: "PENDING", starting: "RETRYING" }[worker.state] ?? "PENDING"}`;
    setText(cells.state, WORDS[worker.state] ?? worker.state);
    const ids = (worker.jobs ?? []).slice(0, 3);
    cells.jobs.replaceChildren(...(ids.length ? ids.flatMap((id) => [h("a", { href: `#/jobs/${encodeURIComponent(id)}`, class: "mono" }, f.shortId(id)), " "]) : [f.NONE]));
    if ((worker.jobs ?? []).length > 3) cells.jobs.append(`and ${worker.jobs.length - 3} more`);
    setText(cells.done, f.count(worker.jobsDone));
    setText(cells.pid, worker.pid ?? f.NONE);
    if (cells.since !== worker.startedAt) cells.started.replaceChildren(ago(worker.startedAt));
    cells.since = worker.startedAt;
  };
  page.refresh(async () => {
    const { workers } = await page.get("/workers");
    keyed(body, workers, (worker) => `${worker.name} ${worker.pid}`, create, update);
    table.hidden = !workers.length;
    quiet.hidden = workers.length > 0;
    setText(box.noteElement, workers.length);
  }, 5);
}
