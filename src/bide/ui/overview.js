// The overview: is something wrong, what runs, what waits, what failed, how fast is it.

import { ago, bar, copyButton, empty, h, icon, keyed, linkButton, meter, name, panel, progressText, remaining, segments, select, setText, statusIcon } from "./dom.js";
import * as f from "./format.js";
import { plot, sparkline } from "./plot.js";
import { queueTable } from "./queues.js";

// Seconds of the period, its name, seconds of one point, and what a plot counts per point.
const RANGES = { "1h": [3600, "hour", 60, "minute"], "6h": [6 * 3600, "6 hours", 300, "5 minutes"], "24h": [86400, "24 hours", 1800, "30 minutes"], "7d": [7 * 86400, "7 days", 10800, "3 hours"] };
const ROWS = 7;

export function show(page) {
  const { view, params, get, live, allows, isAdmin, go } = page;
  page.title("Overview");
  const standard = "6h";
  let range = params.get("range") in RANGES ? params.get("range") : standard;
  let chosen = range !== standard; // whether the user has chosen the period
  let kind = params.get("kind") ?? "";
  const remember = () => page.setParams(new URLSearchParams({ ...(chosen && { range }), ...(kind && { kind }) }));

  const search = h("input", { type: "search", placeholder: "Search jobs", "aria-label": "Search jobs", onkeydown: (event) => {
    if (event.key === "Enter") go(`#/jobs?${new URLSearchParams({ q: search.value })}`);
  } });
  page.onKey("/", () => search.focus());
  const kinds = select("Kind", [["", "All kinds"], ...(kind ? [[kind, kind]] : [])], kind, (value) => { kind = value; remember(); reader.now(); });
  const ranges = segments("Period", Object.keys(RANGES).map((value) => [value, value.replace(/(\d+)/, "$1\u202f")]), range, (value) => { range = value; chosen = true; remember(); statsReader.now(); });
  view.append(h("header", { class: "head" }, h("h1", null, "Overview"),
    h("div", { class: "tools" }, h("label", { class: "search small" }, icon("search"), search, h("kbd", null, "/")), kinds, ranges,
      allows("submit") && linkButton("Submit job", "#/submit", { icon: "plus", kind: "primary" }))));

  const warnings = h("ul", { class: "warnings", hidden: true, "aria-label": "Warnings" });
  const figures = h("dl", { class: "figures" });
  const running = panel("In progress", { aside: h("span", { class: "faint" }, "newest first") });
  const list = h("ol", { class: "running" });
  const idle = Object.assign(empty("No job is running", "New jobs appear here within a second."), { hidden: true });
  const runningFoot = h("footer");
  running.body.append(list, idle);
  running.append(runningFoot);
  const failures = panel("Failures by code");
  const failuresFoot = h("footer", { hidden: true });
  failures.append(failuresFoot);
  const throughput = panel("Throughput", { aside: h("span", { class: "legend" }, h("i", { class: "swatch done" }), "Done", h("i", { class: "swatch error" }), "Error") });
  const times = panel("Run time", { aside: h("span", { class: "legend" }, h("i", { class: "stroke p50" }), "p50", h("i", { class: "stroke p95" }), "p95") });
  const queues = panel("Queues", { aside: h("a", { href: "#/queues" }, "All queues") });
  const table = queueTable(page, () => reader.now());
  queues.body.append(table);
  const content = h("div", { class: "content" }, warnings, figures, h("div", { class: "columns two-one" }, running, failures),
    h("div", { class: "columns one-one plots" }, throughput, times), isAdmin && queues);
  const first = h("div", { class: "first", hidden: true });
  view.append(content, first);

  const flows = plot({ title: "Jobs that ended", points: [], step: 60, stacked: true,
    series: [{ label: "Done", class: "p-done", of: (point) => point.done + point.partial }, { label: "Error", class: "p-error", of: (point) => sum(point.failed) }],
    summary: (points) => `${f.count(points.reduce((all, one) => all + one.done + one.partial, 0))} done, ${f.count(points.reduce((all, one) => all + sum(one.failed), 0))} failed` });
  const runs = plot({ title: "Run time of jobs", points: [], step: 60, seconds: true,
    series: [{ label: "p95", class: "p-p95", of: (point) => point.run?.p95 ?? null }, { label: "p50", class: "p-p50", of: (point) => point.run?.p50 ?? null }],
    summary: (points) => { const last = points.findLast((one) => one.run); return last ? `Latest: p50 ${f.duration(last.run.p50)}, p95 ${f.duration(last.run.p95)}` : "No jobs ended"; } });
  throughput.body.append(flows);
  times.body.append(runs);

  // --- in progress

  let known = false; // whether the service has answered
  const jobs = new Map();
  function createRow(job) {
    const progress = bar(`Progress of ${f.jobName(job)}`);
    const parts = { status: h("span"), text: h("span", { class: "what" }), percent: h("span", { class: "percent" }), left: h("b"), range: h("span", { class: "faint" }), progress };
    const row = h("li", null, h("a", { href: `#/jobs/${job.jobId}`, class: "row" }, parts.status,
      h("span", { class: "who" }, name(f.jobName(job), { class: "name" }), h("span", { class: "faint" }, name(job.kind), " · ", name(job.queue))),
      h("span", { class: "doing" }, parts.text, progress), parts.percent, h("span", { class: "left" }, parts.left, parts.range)));
    return Object.assign(row, { parts });
  }
  function updateRow({ parts }, job) {
    if (parts.shown !== job.status) parts.status.replaceChildren(statusIcon(job.status), h("span", { class: "sr" }, f.word(job.status)));
    parts.shown = job.status;
    const [left, range] = remaining(job);
    setText(parts.text, progressText(job));
    setText(parts.percent, f.percent(job.progress?.percent, job.status === "DONE"));
    setText(parts.left, left);
    setText(parts.range, range);
    parts.progress.show(job.status, job.progress?.percent ?? null, `${f.percent(job.progress?.percent)}, ${left}`);
  }
  const drawRunning = () => {
    keyed(list, [...jobs.values()], (job) => job.jobId, createRow, updateRow);
    idle.hidden = jobs.size > 0 || !known;
  };

  function showQueues(all) {
    const waiting = all.reduce((total, queue) => total + queue.backlog, 0);
    const active = all.reduce((total, queue) => total + queue.running, 0);
    const oldest = Math.max(-1, ...all.map((queue) => queue.oldestAge ?? -1));
    table.show(all);
    setText(queues.noteElement, all.length);
    figure("waiting", "Waiting", f.count(waiting), oldest >= 0 ? `oldest ${f.age(oldest)}` : "nothing waits", "#/jobs?status=PENDING");
    const own = all.filter((queue) => queue.concurrency != null);
    const slots = own.reduce((total, queue) => total + queue.concurrency, 0);
    const limited = all.length > 0 && own.length === all.length; // otherwise queues share workers
    figure("running", "Running", f.count(active), limited ? `${Math.round((100 * active) / slots)}\u202f% of ${f.count(slots)} slots` : `in ${f.count(all.length)} ${all.length === 1 ? "queue" : "queues"}`, "#/jobs?status=PROCESSING");
    setText(running.noteElement, `${f.count(active)} running`);
    return { active };
  }

  // The same figures for a key without the scope admin, which does not see the queues.
  async function countJobs(filter) {
    const [waiting, active] = await Promise.all(["PENDING", "PROCESSING"].map(async (status) => (await get(`/jobs?status=${status}&count=true&limit=1${filter}`)).count));
    figure("waiting", "Waiting", f.count(waiting.value, waiting.more), "\u00a0", "");
    figure("running", "Running", f.count(active.value, active.more), "\u00a0", "");
    setText(running.noteElement, `${f.count(active.value, active.more)} running`);
    return { active: active.value };
  }

  const cells = new Map();
  function figure(id, title, value, note, href, spark, extra) {
    if (!cells.has(id)) {
      const parts = { value: h("b"), extra: h("span", { class: "faint" }), note: h("span", { class: "note" }), spark: h("span", { class: "spark-place" }) };
      cells.set(id, parts);
      figures.append(h("div", null, h("dt", null, title), h("dd", null, h("a", { href }, parts.value, " ", parts.extra), parts.spark, parts.note)));
    }
    const parts = cells.get(id);
    setText(parts.value, value);
    setText(parts.note, note);
    if (extra != null) setText(parts.extra, extra);
    if (spark) parts.spark.replaceChildren(spark);
  }
  for (const [id, title, href] of [["waiting", "Waiting", "#/jobs?status=PENDING"], ["running", "Running", "#/jobs?status=PROCESSING"], ["finished", "Finished, last hour", "#/jobs?status=DONE"], ["failed", "Failed, last hour", "#/jobs?status=ERROR"], ["wait", "Wait p95, last hour", isAdmin ? "#/queues" : "#/jobs"]]) figure(id, title, f.NONE, "\u00a0", href);

  async function read() {
    const filter = kind ? `&kind=${encodeURIComponent(kind)}` : "";
    const [active, all, kindList] = await Promise.all([
      get(`/jobs?status=PROCESSING&status=RETRYING&status=UPLOADING&limit=${ROWS}${filter}`),
      isAdmin ? get("/queues") : countJobs(filter),
      known ? null : get("/kinds"),
    ]);
    if (kindList) {
      known = true;
      const names = kindList.kinds.map((one) => one.kind);
      kinds.replaceChildren(h("option", { value: "" }, "All kinds"), ...names.map((one) => h("option", { value: one, selected: one === kind }, one)));
      page.kindList = kindList.kinds;
    }
    jobs.clear();
    for (const job of active.jobs) jobs.set(job.jobId, job);
    drawRunning();
    const { active: count } = isAdmin ? showQueues(all.queues) : all;
    const hiddenJobs = Math.max(0, count - active.jobs.length);
    runningFoot.replaceChildren(h("span", { class: "faint" }, !active.jobs.length ? "" : hiddenJobs ? `${f.count(hiddenJobs)} more in progress` : "All that are in progress"),
      h("a", { href: "#/jobs?status=PROCESSING&status=RETRYING&status=UPLOADING" }, "View all"));
    const newest = active.jobs.length ? active : await get("/jobs?limit=1");
    showFirst(!newest.jobs.length, all.queues ?? []);
  }

  function showWarnings(found) {
    warnings.hidden = !found.length;
    keyed(warnings, found, (one) => `${one.code} ${one.detail}`, (one) => {
      const link = ["queue", "kind", "breaker"].some((word) => one.code.startsWith(word)) ? ["#/queues", "Open queues"] : one.code.startsWith("webhook") ? ["#/webhooks", "See webhooks"] : ["#/workers", "See workers"];
      return h("li", null, icon("warning"), h("p", null, h("code", null, one.code), " ", name(one.detail)), h("a", { href: link[0] }, link[1]));
    });
  }

  async function readStats() {
    if (!chosen) await fitRange();
    const [length, text, step, unit] = RANGES[range];
    const filter = kind ? `&kind=${encodeURIComponent(kind)}` : "";
    const now = Date.now();
    const iso = (before) => encodeURIComponent(new Date(now - before * 1000).toISOString());
    const [hour, before, whole] = await Promise.all([
      get(`/stats?from=${iso(3600)}&step=60${filter}`),
      get(`/stats?from=${iso(7200)}&to=${iso(3600)}&step=3600${filter}`),
      get(`/stats?from=${iso(length)}&step=${step}${filter}`),
    ]);
    const ended = (point) => point.done + point.partial;
    const thin = (of) => {
      const values = [];
      for (let index = 0; index + 2 < hour.points.length; index += 3) {
        const group = hour.points.slice(index, index + 3).map(of).filter((value) => value != null);
        values.push(group.length ? group.reduce((a, b) => a + b, 0) / group.length : null);
      }
      return values;
    };
    const done = ended(hour.total);
    const earlier = ended(before.total);
    const failed = sum(hour.total.failed);
    const change = earlier ? `${done >= earlier ? "+" : "−"}${Math.abs(Math.round((100 * (done - earlier)) / earlier))}\u202f% on the hour before` : "none in the hour before";
    cells.get("waiting").spark.replaceChildren(sparkline(thin((point) => point.waiting), "PENDING"));
    cells.get("running").spark.replaceChildren(sparkline(thin((point) => point.running), "PROCESSING"));
    figure("finished", "", f.count(done), change, "", sparkline(thin(ended), "DONE"));
    figure("failed", "", f.count(failed), `${f.count(sum(before.total.failed))} in the hour before`, "", sparkline(thin((point) => sum(point.failed)), "ERROR"), failed ? f.share(failed, failed + done) : "");
    figure("wait", "", f.duration(hour.total.wait?.p95), hour.total.wait ? `p50 ${f.duration(hour.total.wait.p50)}` : "no job started", "", sparkline(thin((point) => point.wait?.p95 ?? null), "PROCESSING"));
    showFailures(whole, text);
    setText(throughput.noteElement, `jobs per ${unit}`);
    setText(times.noteElement, kind || "all kinds");
    flows.update(whole.points, whole.step);
    runs.update(whole.points, whole.step);
  }

  // A young service has nothing to show in most of the period, so it begins with the last hour.
  async function fitRange() {
    const now = Date.now();
    const iso = (before) => encodeURIComponent(new Date(now - before * 1000).toISOString());
    const older = await get(`/stats?from=${iso(RANGES[standard][0])}&to=${iso(3600)}&step=3600`);
    range = older.total.submitted ? standard : "1h";
    ranges.show(range);
  }

  function showFailures(whole, text) {
    const codes = Object.entries(whole.total.failed).sort((a, b) => b[1] - a[1]);
    const most = codes[0]?.[1] ?? 1;
    setText(failures.noteElement, `${f.count(sum(whole.total.failed))} in the last ${text}`);
    failuresFoot.hidden = !codes.length;
    const query = new URLSearchParams({ status: "ERROR", ...(kind && { kind }), createdAfter: whole.from });
    failuresFoot.replaceChildren(h("span", { class: "faint" }, codes.length > 6 ? `${codes.length - 6} more codes` : ""), h("a", { href: `#/jobs?${query}` }, allows("control") ? "Open and retry failed jobs" : "Open failed jobs"));
    if (!codes.length) {
      failures.body.replaceChildren(h("p", { class: "quiet" }, `No job has failed in the last ${text}.`));
      return;
    }
    if (!failures.list) failures.list = h("ol", { class: "codes" });
    if (failures.list.parentNode !== failures.body) failures.body.replaceChildren(failures.list);
    keyed(failures.list, codes.slice(0, 6), ([code]) => code, ([code]) => {
      const query = new URLSearchParams({ status: "ERROR", code, ...(kind && { kind }) });
      return h("li", null, h("a", { href: `#/jobs?${query}` }, h("span", { class: "code" }, name(code), h("b")), h("span", { class: "place" }), h("span", { class: "when" }, h("span"), h("span"))));
    }, (row, [code, number]) => {
      setText(row.querySelector("b"), f.count(number));
      row.querySelector(".place").replaceChildren(meter(number / most, "ERROR"));
      if (row.number !== number || row.of !== kind) readNewest(row, code);
      Object.assign(row, { number, of: kind });
    });
  }

  // Where and when a code occurred last, from the newest job that has it.
  async function readNewest(row, code) {
    const { jobs: [newest] } = await get(`/jobs?${new URLSearchParams({ status: "ERROR", code, ...(kind && { kind }), limit: 1 })}`).catch(() => ({ jobs: [] }));
    const [where, when] = row.querySelector(".when").children;
    where.replaceChildren(...(newest ? [name(newest.kind), newest.error?.failedStep ? [" · ", name(newest.error.failedStep)] : []].flat() : []));
    when.replaceChildren(...(newest ? ["last ", ago(newest.finishedAt)] : []));
  }

  // --- before the first job

  function showFirst(none, all) {
    content.hidden = none;
    first.hidden = !none;
    for (const element of [search.parentNode, kinds, ranges]) element.hidden = none;
    if (!none || first.childElementCount) return;
    const list = page.kindList ?? [];
    const simple = list.find((one) => !JSON.stringify(one.inputSchema).includes('"upload"')) ?? list[0];
    first.append(
      empty("No jobs yet", list.length ? "The service is ready. Submit the first job and this page shows it within a second." : "The app has no kinds. Register a handler with @app.job, and start the service again."),
      simple ? commands(simple) : "",
      h("div", { class: "columns one-one" },
        isAdmin && rows(panel("Queues", { note: all.length }), all.map((queue) => [statusIcon(queue.paused ? "CANCELLED" : queue.served ? "DONE" : "RETRYING"), queue.name, queue.paused ? "paused" : queue.served ? "served" : "no worker"])),
        rows(panel("Kinds", { note: list.length }), list.map((one) => [null, one.kind, [Object.keys(one.inputSchema.properties ?? {}).slice(0, 3).join(", "), allows("submit") && [" · ", h("a", { href: `#/submit?kind=${encodeURIComponent(one.kind)}` }, "Submit")]]]))));
  }

  // How to submit a job of this kind: with curl, in Python, and with the command line.
  function commands(kind) {
    const input = JSON.stringify(exampleOf(kind.inputSchema));
    const url = page.base;
    const texts = {
      curl: `curl ${url}/jobs \\\n  -H 'Content-Type: application/json' \\\n  -d '{"kind": "${kind.kind}", "input": ${input}}'`,
      Python: `from bide import Client\n\nwith Client("${url}") as client:\n    print(client.submit("${kind.kind}", ${input.replace(/\btrue\b/g, "True").replace(/\bfalse\b/g, "False").replace(/\bnull\b/g, "None")}).result())`,
      bide: `bide submit ${kind.kind} --input '${input}' --wait \\\n  --url ${url}`,
    };
    let shown = "curl";
    const text = h("pre", { tabindex: 0 }, texts[shown]);
    const ways = segments("Way to submit", Object.keys(texts).map((one) => [one, one]), shown, (value) => { shown = value; setText(text, texts[value]); });
    return h("section", { class: "panel command", "aria-label": "Command" }, h("header", null, ways, h("div", { class: "aside" }, copyButton(() => texts[shown], "Copy the command"))), text,
      h("footer", null, h("span", { class: "waiting-dot" }, h("span", { class: "dot" }), "Waiting for the first job"), allows("submit") && h("span", null, "or ", h("a", { href: "#/submit" }, "fill in a form"))));
  }

  const reader = page.refresh(read, 5);
  page.refresh(async () => {
    const ready = await get("/readyz").catch((error) => {
      if (!error.problem) throw error; // the connection's state says it
      return { warnings: [{ code: "not-ready", detail: error.problem.detail }] };
    });
    showWarnings(ready.warnings ?? []);
  }, 5);
  const statsReader = page.refresh(readStats, 10);
  page.onEnd(live.listen((events) => {
    let changed = false;
    let moved = false;
    for (const event of events) {
      const job = jobs.get(event.jobId);
      if (event.type !== "progress") changed = true;
      else if (job) {
        Object.assign(job, { progress: event.job.progress ?? job.progress }, event.job.eta !== undefined && { eta: event.job.eta });
        moved = true;
      }
    }
    if (changed) reader.soon();
    if (moved) drawRunning();
  }));
  const ticking = setInterval(drawRunning, 1000);
  page.onEnd(() => clearInterval(ticking));
  page.onChange((next) => {
    range = next.get("range") in RANGES ? next.get("range") : standard;
    kind = next.get("kind") ?? "";
    ranges.show(range);
    kinds.value = kind;
    reader.now();
    statsReader.now();
  });
}

function rows(element, entries) {
  element.body.append(h("ul", { class: "rows" }, entries.map(([mark, text, note]) => h("li", null, mark, name(text), h("span", { class: "note" }, note)))));
  return element;
}

const sum = (counts) => Object.values(counts ?? {}).reduce((all, one) => all + one, 0);

// An input that fits the schema of a kind.
function exampleOf(schema) {
  const found = {};
  for (const name of schema.required ?? []) found[name] = exampleValue(schema.properties?.[name] ?? {});
  return found;
}
function exampleValue(schema) {
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  return { integer: 1, number: 1.5, boolean: true, array: [], object: {}, null: null }[schema.type] ?? "text";
}
