// Workers: the handler processes and what they run, and the leases on their jobs.

import { ago, at, h, icon, keyed, meter, name, panel, setText, statusIcon } from "./dom.js";
import * as f from "./format.js";

const WORDS = { starting: "Starting", idle: "Idle", busy: "Busy" };

export function show(page) {
  page.title("Workers");
  const box = panel("Handler processes");
  const body = h("tbody");
  const table = h("div", { class: "scroller" }, h("table", null, h("thead", null, h("tr", null,
    h("th", { scope: "col" }, "Worker"), h("th", { scope: "col" }, "State"), h("th", { scope: "col", class: "minor" }, "Runs"), h("th", { scope: "col" }, "Jobs now"),
    h("th", { scope: "col", class: "number" }, "Jobs done"), h("th", { scope: "col", class: "number minor pid" }, "Process"), h("th", { scope: "col", class: "number minor" }, "Started"))), body));
  const quiet = h("p", { class: "quiet", hidden: true }, "No worker is alive. Start one: with the embedded engine, bide serve does; with Celery, run bide worker MODULE:app.");
  box.body.append(table, quiet);
  const leases = panel("Leases", { aside: h("span", { class: "faint" }, "The claims of processes on the jobs that they run") });
  const leaseBody = h("tbody");
  const leaseTable = h("div", { class: "scroller" }, h("table", { class: "leases" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Owner"), h("th", { scope: "col", class: "number minor" }, "Renewed"),
    h("th", { scope: "col", class: "number" }, "Ends"), h("th", { scope: "col", class: "use" }, h("span", { class: "sr" }, "Time left")), h("th", { scope: "col" }, "State"))), leaseBody));
  const noLease = h("p", { class: "quiet", hidden: true }, "No job is running, so there is no lease.");
  leases.body.append(leaseTable, noLease);
  page.view.append(h("header", { class: "head" }, h("h1", null, "Workers")), box, leases);
  const createLease = (lease) => {
    const cells = { renewed: h("td", { class: "number minor" }), ends: h("td", { class: "number" }), use: h("td", { class: "use" }), state: h("td") };
    return Object.assign(h("tr", null, h("th", { scope: "row" }, name(lease.owner)), cells.renewed, cells.ends, cells.use, cells.state), { parts: cells });
  };
  const updateLease = ({ parts: cells }, lease) => {
    const left = lease.remaining;
    const length = lease.seconds ?? 30;
    const late = left < 0.4 * length; // a healthy process renews after a third
    const word = left <= 0 ? "Ended" : late ? "Late" : "Renewed in time";
    setText(cells.renewed, `${f.age(Math.max(0, length - left))} ago`);
    cells.ends.replaceChildren(at(lease.until, left > 0 ? `in ${f.age(left)}` : "now"));
    cells.use.replaceChildren(meter(left / length, late ? "RETRYING" : "PROCESSING"));
    if (cells.shown === word) return;
    cells.shown = word;
    cells.state.replaceChildren(h("span", { class: `state ${late ? "unserved" : ""}` }, late && icon("warning"), word));
  };
  const create = (worker) => {
    const cells = { state: h("span"), jobs: h("td"), done: h("td", { class: "number" }), pid: h("td", { class: "number minor pid" }), started: h("td", { class: "number minor" }) };
    return Object.assign(h("tr", null, h("th", { scope: "row" }, name(worker.name)), h("td", null, cells.state), h("td", { class: "minor" }, worker.runs), cells.jobs, cells.done, cells.pid, cells.started), { parts: cells });
  };
  const update = ({ parts: cells }, worker) => {
    const status = { busy: "PROCESSING", idle: "PENDING", starting: "RETRYING" }[worker.state] ?? "PENDING";
    if (cells.shown !== worker.state) {
      cells.shown = worker.state;
      cells.state.className = `status s-${status}`;
      cells.state.replaceChildren(statusIcon(status), WORDS[worker.state] ?? worker.state);
    }
    const ids = (worker.jobs ?? []).slice(0, 3);
    cells.jobs.replaceChildren(...(ids.length ? ids.flatMap((id) => [h("a", { href: `#/jobs/${encodeURIComponent(id)}`, class: "mono" }, f.shortId(id)), " "]) : [f.NONE]));
    if ((worker.jobs ?? []).length > 3) cells.jobs.append(`and ${worker.jobs.length - 3} more`);
    setText(cells.done, f.count(worker.jobsDone));
    setText(cells.pid, worker.pid ?? f.NONE);
    if (cells.since !== worker.startedAt) cells.started.replaceChildren(ago(worker.startedAt));
    cells.since = worker.startedAt;
  };
  page.refresh(async () => {
    const { workers, leases: held } = await page.get("/workers");
    keyed(leaseBody, mergeLeases(held), (lease) => lease.owner, createLease, updateLease);
    leaseTable.hidden = !held.length;
    noLease.hidden = held.length > 0;
    keyed(body, workers, (worker) => `${worker.name} ${worker.pid}`, create, update);
    table.hidden = !workers.length;
    quiet.hidden = workers.length > 0;
    setText(box.noteElement, workers.length);
  }, 5);
}

// A process has several leases if it has claimed jobs at different times: the first that ends is shown.
function mergeLeases(leases) {
  const first = new Map();
  for (const lease of leases) if (!first.has(lease.owner) || lease.until < first.get(lease.owner).until) first.set(lease.owner, lease);
  return [...first.values()];
}
