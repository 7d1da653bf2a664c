// One job: its error above all, then states, steps, log, output, input, result, files, attempts and children.

import { ago, announce, at, badge, bar, button, confirm, copyButton, cut, empty, h, icon, json, keyed, linkButton, name, panel, progressText, remaining, segments, setText, statusIcon, toast, toastError } from "./dom.js";
import * as f from "./format.js";

const LINES = 2000; // of the log that the page keeps
const LONG = 4096; // characters of a line that are shown
const CHUNKS = 500; // of the output
const IMAGES = /^image\/(png|jpeg|gif|webp)$/;
const DELIVERED = { delivered: "DONE", pending: "RETRYING", failed: "ERROR" };
const LEVELS = ["debug", "info", "warning", "error", "critical"];

export function show(page) {
  const { view, get, live, client, allows, arg: id } = page;
  const path = `/jobs/${encodeURIComponent(id)}`;
  page.title(`Job ${f.shortId(id)}`);
  let job = null;
  let kind = null;
  let failedStatus = null;

  // --- head

  const kindLink = h("a", { href: "#/jobs", hidden: true }); // until the kind is known: a link needs a name
  const crumbs = h("p", { class: "crumbs" }, h("a", { href: "#/jobs" }, "Jobs"), icon("right"), kindLink, icon("right"), h("code", null, cut(id, 40)), copyButton(id, "Copy the id"), h("span", { class: "next", "aria-hidden": "true" }, "Next ", h("kbd", null, "j"), " Previous ", h("kbd", null, "k")));
  const heading = h("h1", null, f.shortId(id));
  const state = h("span");
  const tools = h("div", { class: "tools" });
  const main = h("div", { class: "content" });
  view.append(crumbs, h("header", { class: "head" }, heading, state, tools), main);

  const summary = h("section", { class: "panel", "aria-label": "Progress and states" });
  const big = h("span", { class: "big" });
  const doing = h("span");
  const ends = h("span", { class: "end" });
  const progress = bar("Progress of this job");
  const states = h("ol", { class: "timeline", "aria-label": "States" });
  summary.append(h("div", { class: "summary" }, h("div", { class: "line-one" }, big, doing, ends), progress), states);

  const error = h("section", { class: "panel error-panel", "aria-label": "Error", hidden: true });
  const steps = panel("Steps");
  const log = panel("Log");
  const output = panel("Output stream");
  const input = panel("Input");
  const result = panel("Result");
  const details = panel("Details");
  const attempts = panel("Attempts");
  const files = panel("Files");
  const family = panel("Children");
  const deliveries = panel("Webhook deliveries");
  main.append(summary, h("div", { class: "job-columns" }, h("div", null, error, steps, log, output, h("div", { class: "columns one-one" }, input, result)), h("div", null, details, attempts, files, family, deliveries)));
  for (const one of [steps, output, files, family, deliveries, attempts]) one.hidden = true;
  main.hidden = true;

  // --- actions

  async function act(verb, question, consequence, labels) {
    if (!job || !(await confirm(question, consequence, labels))) return;
    try {
      job = { ...job, ...(await client.job(id)[verb]()) };
      announce(verb === "cancel" ? "Cancel requested" : "The job runs again");
      toast(verb === "cancel" ? (job.status === "CANCELLED" ? "The job is cancelled" : "The service asks the job to stop") : "The job runs again");
      draw();
      reader.now();
    } catch (problem) {
      toastError(problem);
    }
  }
  const canCancel = () => allows("control") && job && !f.TERMINAL.has(job.status) && !job.cancelRequested;
  const canRetry = () => allows("control") && job && ["ERROR", "CANCELLED", "PARTIAL_SUCCESS"].includes(job.status);
  const cancel = () => canCancel() && act("cancel", "Cancel this job?", "The service stops it, and cancels its unfinished children. Finished steps are kept for a retry.", { yes: "Cancel the job", no: "Keep it running", danger: true });
  const retry = () => canRetry() && act("retry", "Retry this job?", "The same job runs again. It keeps finished steps and successful children, and counts its attempts from zero.", { yes: "Retry", no: "Leave it" });
  if (allows("control")) {
    page.onKey("c", cancel);
    page.onKey("r", retry);
  }
  function drawTools() {
    const shown = `${job.status} ${job.cancelRequested}`;
    if (tools.shown === shown) return;
    tools.shown = shown;
    // The service rejects submissions of its own kinds.
    tools.replaceChildren(...(job.kind.startsWith("bide.") || !allows("submit") ? [] : [linkButton("Run again with edited input", `#/submit?${new URLSearchParams({ from: id })}`, { icon: "edit" })]),
      ...(canCancel() ? [button("Cancel", { icon: "stop", kind: "danger", onclick: cancel })] : []), ...(canRetry() ? [button("Retry", { icon: "retry", kind: "primary", onclick: retry })] : []),
      ...(job.cancelRequested && !f.TERMINAL.has(job.status) ? [h("span", { class: "faint" }, "cancel requested")] : []));
  }
  // The list that this page was opened from is newest first.
  const sibling = async (order, bound) => {
    const found = await get(`/jobs?order=${order}&limit=2&${bound}=${encodeURIComponent(job.createdAt)}`).catch(() => null);
    const other = found?.jobs.find((one) => one.jobId !== id);
    if (other) page.go(`#/jobs/${other.jobId}`);
    else announce("There is no other job");
  };
  page.onKey("j", () => job && sibling("newest", "createdBefore"));
  page.onKey("k", () => job && sibling("oldest", "createdAfter"));

  // --- status

  function draw() {
    main.hidden = false;
    const title = f.jobName(job);
    if (heading.textContent !== cut(title, 300)) heading.replaceChildren(name(title));
    page.title(cut(title, 60));
    setText(kindLink, job.kind);
    kindLink.hidden = false;
    kindLink.href = `#/jobs?${new URLSearchParams({ kind: job.kind })}`;
    if (state.shown !== job.status) {
      state.replaceChildren(badge(job.status, true));
      if (state.shown) announce(`The job is ${f.word(job.status)}`);
      state.shown = job.status;
    }
    drawTools();
    const ended = f.TERMINAL.has(job.status);
    const value = job.progress?.percent ?? null;
    setText(big, job.status === "PENDING" || (ended && value == null && job.status !== "DONE") ? "" : f.percent(value, job.status === "DONE"));
    big.hidden = !big.textContent;
    setText(doing, ended ? endText() : progressText(job));
    const [left, range] = remaining(job);
    ends.replaceChildren(...(ended ? [h("span", { class: "faint" }, `${job.attempt} of ${job.maxAttempts} attempts`)] : job.status === "PENDING" ? [] : [h("b", null, left), " ", h("span", { class: "faint" }, job.eta ? `done between ${range.replace("–", "and")}` : range)]));
    progress.show(job.status, ended && value == null ? (job.status === "PARTIAL_SUCCESS" ? 100 : 0) : value, `${f.percent(value, job.status === "DONE")}${ended ? "" : `, ${left}`}`);
    progress.classList.add("thick");
    drawDetails();
    drawAttempts();
    drawFiles();
    drawFamily();
    drawResult();
    drawError();
    drawSteps();
  }

  function endText() {
    const took = job.startedAt && job.finishedAt ? ` after ${f.duration(f.seconds(job.startedAt, job.finishedAt))}` : "";
    if (job.status === "ERROR") return `Stopped${job.error?.failedStep ? ` in ${job.error.failedStep}` : ""}${took}`;
    return `${f.word(job.status)}${took}`;
  }

  function drawDetails() {
    const latest = job.attempts?.at(-1);
    const waited = f.seconds(job.runAt ?? job.createdAt, job.attempts?.[0]?.startedAt);
    const rows = [["Kind", name(job.kind)], ["Queue", h("a", { href: `#/jobs?${new URLSearchParams({ queue: job.queue })}` }, name(job.queue))], latest?.worker && ["Worker", name(latest.worker)],
      ["Attempt", job.attempt ? `${job.attempt} of ${job.maxAttempts}` : `none of ${job.maxAttempts} yet`], ["Priority", String(job.priority)], ["Created", [ago(job.createdAt), " ", h("span", { class: "faint" }, at(job.createdAt))]],
      job.runAt && ["Start at", at(job.runAt, f.local(job.runAt))], waited != null && ["Waited", f.duration(waited)],
      job.startedAt && job.finishedAt && ["Run time", f.duration(f.seconds(job.startedAt, job.finishedAt))], job.finishedAt && ["Finished", [ago(job.finishedAt), " ", h("span", { class: "faint" }, at(job.finishedAt))]],
      job.deadline && ["Deadline", at(job.deadline, f.local(job.deadline))], job.expiresAt && ["Expires", at(job.expiresAt, `in ${f.age(Math.max(0, (new Date(job.expiresAt) - Date.now()) / 1000))}`)],
      job.overdue && ["Overdue", "runs longer than three times the 99th percentile"], job.traceId && ["Trace", [h("code", { title: job.traceId }, f.shortId(job.traceId)), " ", copyButton(job.traceId, "Copy the trace id")]],
      Object.keys(job.labels ?? {}).length && ["Labels", h("span", { class: "labels" }, Object.entries(job.labels).map(([key, value]) => h("a", { class: "label", href: `#/jobs?${new URLSearchParams({ label: `${key}:${value}` })}` }, name(key), h("b", null, name(value)))))]];
    const text = JSON.stringify([job.status, job.attempt, job.startedAt, job.finishedAt, job.labels, latest?.worker, waited]);
    if (details.shown === text) return;
    details.shown = text;
    details.body.replaceChildren(h("dl", { class: "facts" }, rows.filter(Boolean).map(([term, value]) => [h("dt", null, term), h("dd", null, value)])));
  }

  function drawAttempts() {
    const all = [...(job.attempts ?? [])].reverse();
    attempts.hidden = !all.length;
    setText(attempts.noteElement, `${job.attempt} of ${job.maxAttempts}`);
    attempts.list ??= attempts.body.appendChild(h("ul", { class: "rows" }));
    keyed(attempts.list, all.slice(0, 20), (one) => `${one.fence} ${one.outcome}`, (one) => {
      const parked = one.outcome === "PARKED";
      const status = parked ? "PENDING" : one.outcome ?? "PROCESSING";
      const mark = status === "RETRYING" ? "ERROR" : status;
      return h("li", null, statusIcon(mark), h("span", { class: "whole" }, h("b", null, `#${one.attempt}`), " ", one.error ? h("code", null, name(one.error.code)) : parked ? "Parked for its children" : f.word(mark)),
        h("span", { class: "note line" }, one.worker ? [name(one.worker), " · "] : "", one.endedAt ? f.duration(f.seconds(one.startedAt, one.endedAt)) : ["since ", at(one.startedAt)]));
    });
  }

  function drawFiles() {
    files.hidden = !job.files?.length;
    setText(files.noteElement, job.files?.length ?? 0);
    files.list ??= files.body.appendChild(h("div"));
    keyed(files.list, job.files ?? [], (file) => `${file.name} ${file.sha256}`, (file) => {
      const url = `${page.base}${path}/files/${encodeURIComponent(file.name)}`;
      return h("div", null, h("ul", { class: "rows" }, h("li", null, icon("file"), h("span", null, name(file.name), h("br"), h("span", { class: "faint" }, f.size(file.size), " · ", name(file.contentType))),
        h("span", { class: "note" }, linkButton("Download", url, { icon: "download", kind: "small", download: "", "aria-label": `Download ${cut(file.name, 100)}` })))),
        /^application\/(json|[\w.-]+\+json)$/.test(file.contentType) && file.size < 1e6 && shownJson(file),
        IMAGES.test(file.contentType) && file.size < 5e6 && h("img", { class: "preview", src: url, alt: `Output file ${cut(file.name, 100)}`, loading: "lazy" }));
    });
  }

  // Reads the file when it is opened, and shows it as text.
  function shownJson(file) {
    const box = h("details", { class: "shown", ontoggle: async () => {
      if (!box.open || box.childElementCount > 1) return;
      try {
        const text = await (await page.read(`${path}/files/${encodeURIComponent(file.name)}`)).text();
        box.append(json(JSON.parse(text)));
      } catch (problem) {
        box.append(h("p", { class: "quiet" }, `The file cannot be shown: ${problem.message}`));
      }
    } }, h("summary", null, "View"));
    return box;
  }

  const known = new Map(); // the parent and children, by id
  async function readFamily() {
    const parent = parentId();
    const wanted = [...(parent ? [parent] : []), ...(job.children ?? []).slice(0, 50).map((child) => child.jobId)].filter((one) => !f.TERMINAL.has(known.get(one)?.status));
    if (!wanted.length) return;
    const { jobs } = await get(`/jobs?${wanted.map((one) => `id=${one}`).join("&")}`);
    for (const one of jobs) known.set(one.jobId, one);
    drawFamily();
  }
  const parentId = () => job.links.parent?.split("/").at(-1);

  function drawFamily() {
    const all = (job.children ?? []).slice(0, 50).map((child) => ({ ...child, ...known.get(child.jobId) }));
    const parent = parentId();
    family.hidden = !all.length && !parent;
    if (family.hidden) return;
    setText(family.heading, parent ? "Parent and children" : "Children");
    setText(family.noteElement, all.length ? f.count(job.children.length) : "");
    family.list ??= family.body.appendChild(h("ul", { class: "rows" }));
    const rows = [...(parent ? [{ jobId: parent, kind: "parent", ...known.get(parent), isParent: true }] : []), ...all];
    keyed(family.list, rows, (one) => `${one.jobId} ${one.status} ${one.createdAt != null}`, (one) => {
      const title = one.labels?.name ? [name(one.kind), h("span", { class: "faint" }, " · ", name(one.labels.name))] : name(one.kind);
      return Object.assign(h("li", null, one.isParent && icon("up"), statusIcon(one.status ?? "PROCESSING"), h("a", { href: `#/jobs/${one.jobId}` }, one.isParent && h("span", { class: "sr" }, "Parent: "), title, h("span", { class: "sr" }, `, ${one.status ? f.word(one.status) : "not ended"}`)), h("span", { class: "note" })));
    }, (row, one) => {
      const took = one.startedAt && one.finishedAt && f.duration(f.seconds(one.startedAt, one.finishedAt));
      setText(row.lastChild, one.progress?.percent != null && !f.TERMINAL.has(one.status) ? f.percent(one.progress.percent) : took || (one.status ? f.word(one.status) : f.shortId(one.jobId)));
    });
  }

  // --- deliveries of webhooks

  async function readDeliveries() {
    const found = await get(`${path}/deliveries?limit=10`);
    deliveries.hidden = !found.deliveries.length;
    setText(deliveries.noteElement, found.deliveries.length ? f.count(found.deliveries.length, found.next) : "");
    deliveries.list ??= deliveries.body.appendChild(h("ul", { class: "rows" }));
    deliveries.list.replaceChildren(...found.deliveries.map((one) => {
      const last = one.attempts.at(-1);
      const outcome = !last ? "waits" : `${last.error ?? last.status} in ${f.duration(last.seconds)}`;
      const again = one.nextAttemptAt ? `, again in ${f.age(Math.max(0, (new Date(one.nextAttemptAt) - Date.now()) / 1000))}` : "";
      return h("li", null, statusIcon(DELIVERED[one.status] ?? "PENDING"), h("span", { class: "sr" }, one.status), h("span", { title: cut(one.url, 300) }, name(one.type), statusOf(one.body)), h("span", { class: "note" }, name(outcome), again));
    }));
  }
  const statusOf = (body) => {
    try {
      const { status } = JSON.parse(body).data.job;
      return status in f.WORDS ? ` · ${f.word(status)}` : "";
    } catch {
      return "";
    }
  };

  function drawResult() {
    const text = `${job.status} ${JSON.stringify(job.result)?.length}`;
    if (result.shown === text) return;
    result.shown = text;
    const words = { ERROR: "No result, because the job failed.", CANCELLED: "No result, because the job was cancelled." }[job.status] ?? (f.TERMINAL.has(job.status) ? "The handler returned nothing, or a result over 64 KiB." : "Not finished. The result appears here when the job is done.");
    result.asideElement.replaceChildren(...(job.result != null ? [copyButton(() => JSON.stringify(job.result, null, 2), "Copy the result")] : f.TERMINAL.has(job.status) && !job.error ? [h("a", { href: `${page.base}${path}/result`, download: `${id}.json` }, "Download")] : []));
    result.body.replaceChildren(job.result != null ? json(job.result) : h("p", { class: "quiet" }, words));
  }

  function drawInput() {
    if (input.shown) return;
    input.shown = true;
    if (job.input !== undefined) input.asideElement.replaceChildren(copyButton(() => JSON.stringify(job.input, null, 2), "Copy the input"));
    input.body.replaceChildren(job.input == null || !Object.keys(job.input).length ? h("p", { class: "quiet" }, "The job has no input.") : json(job.input));
  }

  // --- the error, with the traceback of the log

  let traceback = null;
  function drawError() {
    const failed = job.error && job.status !== "DONE" && job.status !== "PENDING";
    error.hidden = !failed;
    if (!failed) return;
    const key = `${job.status} ${job.error.code} ${job.error.attempt} ${traceback?.length}`;
    if (error.shown === key) return;
    error.shown = key;
    const { code, message, failedStep, attempt, retryable, errors } = job.error;
    error.className = `panel error-panel s-${job.status === "PARTIAL_SUCCESS" ? job.status : "ERROR"}`;
    error.replaceChildren(h("div", { class: "what-failed" }, statusIcon(job.status === "PARTIAL_SUCCESS" ? "PARTIAL_SUCCESS" : "ERROR"),
      h("p", null, h("span", { class: "code-name" }, name(code)), h("span", { class: "muted" }, failedStep ? [" in ", name(failedStep), ","] : "", attempt ? ` attempt ${attempt}` : "")),
      h("p", { class: "message" }, name(cut(message, 4000))),
      h("p", { class: "also" }, h("span", null, retryable ? "Retryable" : "Not retryable"), h("a", { href: `#/jobs?${new URLSearchParams({ code })}` }, "Others with this code"))));
    if (errors?.length) {
      error.append(h("ul", { class: "rows" }, errors.slice(0, 20).map((one) => h("li", null, h("span", null, h("code", { class: "code-name" }, name(one.code ?? "")), " ", name(cut(one.message ?? "", 1000)))))),
        errors.length > 20 && h("p", { class: "quiet" }, `and ${errors.length - 20} more`) || "");
    }
    if (traceback) error.append(drawTraceback(traceback));
  }

  // --- states and steps, from the events

  let events = [];
  let after = null;
  function drawStates() {
    const seen = [];
    for (const { type, at: when, job: facts } of events) {
      if (type !== "status") continue;
      const last = seen.at(-1);
      if (last && last.status === facts.status && (last.attempt === facts.attempt || facts.status !== "PROCESSING")) continue;
      seen.push({ status: facts.status, attempt: facts.attempt, at: when });
    }
    let shown = seen;
    if (seen.length > 8) shown = [...seen.slice(0, 3), { hidden: seen.length - 7, at: seen[3].at }, ...seen.slice(-4)];
    const expected = job.status === "PROCESSING" && job.eta?.finishAt;
    states.replaceChildren(...shown.map((one, index) => {
      const following = shown[index + 1];
      const took = following ? f.duration(f.seconds(one.at, following.at)) : expected ? f.age(f.since(one.at)) : "";
      if (one.hidden) return h("li", null, h("span", { class: "mark" }, "…", h("span", { class: "stretch" }), h("span", { class: "took" }, took)), h("b", null, `${one.hidden} more`), h("span", { class: "faint" }, "states"));
      return h("li", null, h("span", { class: "mark" }, statusIcon(one.status), h("span", { class: "stretch" }), h("span", { class: "took" }, took)), h("b", null, f.word(one.status)),
        h("span", { class: "faint" }, at(one.at), one.status === "PROCESSING" ? ` · attempt ${one.attempt}` : ""));
    }), ...(expected ? [h("li", { class: "expected" }, h("span", { class: "mark" }, statusIcon("PENDING")), h("b", null, "Done"), h("span", { class: "faint" }, "expected ", at(expected)))] : []));
  }

  function drawSteps() {
    const spans = new Map(); // by step: its bars
    const open = new Map();
    for (const name of Object.keys(kind?.steps ?? {})) spans.set(name, []);
    for (const { name } of job.steps ?? []) if (!spans.has(name)) spans.set(name, []);
    const close = (when, status) => { for (const [, span] of open) Object.assign(span, { to: when, status }); open.clear(); };
    for (const { type, at: when, job: facts } of events) {
      const time = new Date(when).getTime();
      if (type === "status" && facts.status !== "PROCESSING") close(time, facts.status === "RETRYING" || facts.status === "ERROR" ? "ERROR" : facts.status === "DONE" ? "DONE" : "CANCELLED");
      if (type !== "step" || !facts.step) continue;
      const { name, status } = facts.step;
      if (!spans.has(name)) spans.set(name, []);
      if (status === "PROCESSING") {
        const span = { from: time, to: null, status: "PROCESSING" };
        spans.get(name).push(span);
        open.set(name, span);
      } else if (open.has(name)) {
        Object.assign(open.get(name), { to: time, status });
        open.delete(name);
      }
    }
    steps.hidden = !spans.size;
    if (!spans.size) return;
    const tries = (job.attempts ?? []).filter((one) => one.startedAt);
    const now = Date.now();
    const ended = f.TERMINAL.has(job.status);
    const weights = kind?.steps ?? {};
    const start = tries.length ? new Date(tries[0].startedAt).getTime() : Math.min(...[...spans.values()].flat().map((span) => span.from), now);
    const measured = Math.max(start + 1, ended && job.finishedAt ? new Date(job.finishedAt).getTime() : now);
    const predicted = predict(spans, weights, measured);
    const end = Math.max(measured, ...[...predicted.values()].map(([, to]) => to));
    const place = (time) => (100 * (Math.max(start, Math.min(end, time)) - start)) / (end - start);
    const put = (element, from, to) => { element.style.left = `${place(from)}%`; element.style.width = `${place(to) - place(from)}%`; return element; };
    const finished = [...spans.values()].filter((list) => list.at(-1)?.status === "DONE").length;
    const waits = [...spans.values()].some((list) => list.length > 1);
    setText(steps.noteElement, `${finished} of ${spans.size} done`);
    steps.asideElement.replaceChildren(...(waits ? [h("span", { class: "legend" }, h("i", { class: "dots" }), "waiting to retry")] : []), ...(predicted.size ? [h("span", { class: "legend" }, h("i", { class: "outline" }), "predicted")] : []));
    const grid = h("div", { class: "waterfall" }, h("div", { class: "cell head" }, "Step"), h("div", { class: "cell head weight" }, Object.keys(weights).length ? "Weight" : ""));
    const bands = h("div", { class: "cell lane head" });
    const single = tries.length > 12;
    for (const one of single ? [] : tries) {
      const from = new Date(one.startedAt).getTime();
      const to = one.endedAt ? new Date(one.endedAt).getTime() : measured;
      const width = place(to) - place(from);
      bands.append(put(h("span", { class: "band", title: `Attempt ${one.attempt}` }, width > 18 ? `Attempt ${one.attempt}` : width > 7 ? `#${one.attempt}` : ""), from, to));
    }
    grid.append(bands);
    const ticks = ticksOf((end - start) / 1000);
    for (const [step, list] of [...spans].slice(0, 100)) {
      const last = list.at(-1);
      const lane = h("div", { class: "lane" }, [0, ...ticks, (end - start) / 1000].map((tick) => put(h("i", { class: "tick" }), start + tick * 1000, start + tick * 1000)));
      const label = (text, where, at) => { const time = h("span", { class: `time ${where}` }, text); time.style.left = `${at}%`; lane.append(time); };
      const ahead = predicted.get(step);
      list.forEach((span, index) => {
        const to = span.to ?? measured;
        const text = f.duration((to - span.from) / 1000);
        lane.append(put(h("span", { class: `span f-${span.status}`, title: `${f.word(span.status)}, ${text}` }), span.from, to));
        if (list[index + 1]) lane.append(put(h("span", { class: "pause", title: "waiting to retry" }), to, list[index + 1].from));
        // In the bar, behind it, or before it.
        if (place(to) - place(span.from) > 15) label(text, "inside", place(span.from));
        else if (index === list.length - 1 && place(ahead ? ahead[1] : to) <= 85) label(text, "", place(ahead ? ahead[1] : to));
        else if (list.length === 1 && place(span.from) > 15) label(text, "before", place(span.from));
      });
      if (ahead) {
        lane.append(put(h("span", { class: `ahead s-${last ? "PROCESSING" : "PENDING"}`, title: "predicted" }), ...ahead));
        if (!last) label(`≈\u202f${f.rough((ahead[1] - ahead[0]) / 1000)}`, place(ahead[0]) > 15 ? "before" : "", place(ahead[0]) > 15 ? place(ahead[0]) : place(ahead[1]));
      }
      grid.append(h("div", { class: "cell" }, statusIcon(last?.status ?? "PENDING"), name(step), h("span", { class: "sr" }, f.word(last?.status ?? "PENDING"))), h("div", { class: "cell weight" }, weights[step] == null ? "" : String(weights[step])), lane);
    }
    const whole = (end - start) / 1000;
    const scale = h("div", { class: "scale" }, h("span", null, f.clock(start)), ticks.filter((tick) => tick / whole > 0.15 && tick / whole < 0.85).map((tick) => { const label = h("span", { class: "at" }, f.duration(tick).replace(/ 00\u202f[sm]$/, "")); label.style.left = `${(100 * tick) / whole}%`; return label; }), h("span", { class: "last" }, f.duration(whole)));
    grid.append(scale);
    steps.body.replaceChildren(grid);
  }

  // When the unfinished steps will run, by the estimated end of the job and their weights: [from, to] by step.
  function predict(spans, weights, now) {
    const found = new Map();
    const finish = job.status === "PROCESSING" && job.eta?.finishAt ? new Date(job.eta.finishAt).getTime() : 0;
    const sum = Object.values(weights).reduce((all, one) => all + one, 0);
    if (finish <= now || !sum) return found;
    const isDone = (step) => spans.get(step)?.at(-1)?.status === "DONE";
    const behind = Object.entries(weights).reduce((all, [step, weight]) => all + (isDone(step) ? weight : 0), 0);
    const current = Math.max(0, ((job.progress?.percent ?? 0) / 100) * sum - behind);
    const rest = Object.entries(weights).filter(([step]) => !isDone(step)).map(([step, weight]) => [step, spans.get(step)?.at(-1)?.status === "PROCESSING" ? Math.max(0, weight - current) : weight]);
    const left = rest.reduce((all, [, weight]) => all + weight, 0);
    let from = now;
    for (const [step, weight] of left ? rest : []) {
      const to = from + ((finish - now) * weight) / left;
      if (to > from) found.set(step, [from, to]);
      from = to;
    }
    return found;
  }

  async function readEvents() {
    for (let turn = 0; turn < 5; turn += 1) {
      const found = await get(`${path}/events?type=status,step${after ? `&after=${after}` : ""}`);
      if (found.events.some((event) => event.type === "reset")) events = [];
      events.push(...found.events.filter((event) => event.type !== "reset"));
      after = found.next;
      if (!found.more) break;
    }
    drawStates();
    drawSteps();
  }

  // --- the log

  let lines = [];
  let logAfter = null;
  let level = "info";
  let wanted = "";
  const logView = h("div", { class: "log", role: "log", "aria-live": "off", tabindex: 0, "aria-label": "Log lines" });
  const find = h("input", { type: "search", placeholder: "Search log", "aria-label": "Search the log", oninput: () => { wanted = find.value.toLowerCase(); drawLog(true); } });
  const levels = segments("Level", [["debug", "All"], ["info", "Info"], ["warning", "Warn"], ["error", "Error"]], level, (value) => { level = value; drawLog(true); });
  const follow = button("Jump to the newest", { kind: "small", hidden: true, onclick: () => { logView.scrollTop = logView.scrollHeight; } });
  log.asideElement.append(follow, h("label", { class: "search small" }, icon("search"), find), levels);
  log.body.append(logView);
  let drawn = 0;
  let following = true;
  logView.addEventListener("scroll", () => {
    following = logView.scrollTop + logView.clientHeight > logView.scrollHeight - 24;
    if (following) follow.hidden = true;
  });
  const rank = (line) => Math.max(0, LEVELS.indexOf(String(line.level).toLowerCase()) < 0 ? 1 : LEVELS.indexOf(String(line.level).toLowerCase()));
  const wordOf = (line) => ["DEBUG", "INFO", "▲ WARN", "◆ ERROR", "◆ CRIT"][rank(line)];
  function drawLine(line) {
    const { level: _, at: when, attempt, message, logger, ...fields } = line;
    const extra = Object.entries(fields).filter(([, value]) => value != null).map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ");
    const text = `${message ?? ""}`.trimEnd();
    const body = h("bdi", { class: "message" }, text.slice(0, 2000), text.length > 2000 ? text.slice(2000, LONG) : "", extra && h("span", { class: "fields" }, `  ${cut(extra, LONG)}`));
    if (text.length > LONG) body.append("… ", h("button", { type: "button", onclick: (event) => { event.target.remove(); body.append(document.createTextNode(text.slice(LONG))); } }, `Show all ${f.count(text.length)} characters`));
    return h("p", { class: LEVELS[rank(line)], title: logger ? `Logger ${cut(logger, 200)}` : null }, at(when, f.clock(when, true)), h("span", { class: "level" }, wordOf(line)), h("span", { class: "attempt" }, `#${attempt}`), body);
  }
  function drawLog(all) {
    const fits = (line) => rank(line) >= LEVELS.indexOf(level) && (!wanted || `${line.message} ${JSON.stringify(line)}`.toLowerCase().includes(wanted));
    if (all) { logView.replaceChildren(); drawn = 0; }
    const fresh = lines.slice(drawn).filter(fits);
    drawn = lines.length;
    logView.append(...fresh.map(drawLine));
    while (logView.childElementCount > LINES) logView.firstChild.remove();
    setText(log.noteElement, `${f.count(lines.length, lines.cut)} ${lines.length === 1 ? "line" : "lines"}`);
    if (!logView.childElementCount) logView.replaceChildren(h("span", { class: "quiet" }, lines.length ? "No line matches." : f.TERMINAL.has(job?.status) ? "The job has logged nothing." : "No lines yet."));
    else logView.querySelector(".quiet")?.remove();
    if (!all && fresh.length && !following) { follow.hidden = false; setText(follow.firstChild, `${fresh.length} new lines`); }
    if (following && !f.TERMINAL.has(job?.status)) logView.scrollTop = logView.scrollHeight;
  }
  async function readLog() {
    for (let turn = 0; turn < 10; turn += 1) {
      const found = await get(`${path}/log${logAfter ? `?after=${encodeURIComponent(logAfter)}` : ""}`);
      lines.push(...found.log);
      logAfter = found.next;
      if (found.log.length < 1000) break;
    }
    if (lines.length > LINES) { lines = Object.assign(lines.slice(-LINES), { cut: true }); drawn = 0; drawLog(true); } else drawLog(false);
    const found = lines.findLast((line) => rank(line) >= 3 && /^Traceback|\n  File "/.test(line.message ?? ""));
    if (found && found.message !== traceback) { traceback = found.message; if (job) drawError(); }
  }

  // --- the output

  let chunks = [];
  let outAfter = null;
  const outView = h("div", { class: "output", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Output" });
  output.body.append(outView);
  async function readOutput() {
    const found = await get(`${path}/stream${outAfter ? `?after=${outAfter}` : ""}`);
    outAfter = found.next ?? outAfter;
    const fresh = found.events.filter((event) => event.type === "output");
    if (!fresh.length) return;
    chunks = [...chunks, ...fresh].slice(-CHUNKS);
    output.hidden = false;
    setText(output.noteElement, `${f.count(chunks.length, chunks.length === CHUNKS)} items`);
    const row = ({ job: { index, output: data } }) => h("p", null, h("span", { class: "index" }, String(index ?? "")), name(cut(typeof data === "string" ? data : JSON.stringify(data), LONG)));
    outView.append(...fresh.slice(-CHUNKS).map(row));
    while (outView.childElementCount > CHUNKS) outView.firstChild.remove();
    outView.scrollTop = outView.scrollHeight;
  }

  // --- reading

  async function read() {
    try {
      job = await get(`${path}?include=input,attempts`);
    } catch (problem) {
      if (problem.status !== 404 && problem.status !== 410) throw problem;
      failedStatus = problem.status;
      main.hidden = false;
      main.replaceChildren(empty(failedStatus === 410 ? "This job was deleted" : "There is no such job", problem.problem.detail, linkButton("All jobs", "#/jobs")));
      return;
    }
    if (!kind) kind = (await get("/kinds").catch(() => ({ kinds: [] }))).kinds.find((one) => one.kind === job.kind) ?? {};
    draw();
    drawInput();
    await Promise.all([readEvents(), readLog(), readOutput(), readFamily(), readDeliveries()]);
  }

  const stop = live.follow(id);
  page.onEnd(stop);
  const reader = page.refresh(read, 10);
  let pending = null;
  const later = new Set();
  page.onEnd(live.listen((batch) => {
    let changed = false;
    for (const event of batch) {
      if (event.type === "reset") changed = true;
      if (event.jobId !== id || !job) continue;
      if (event.type === "progress") { job.progress = event.job.progress; draw(); }
      else if (event.type === "log") later.add(readLog);
      else if (event.type === "output") later.add(readOutput);
      else changed = true;
    }
    if (changed) reader.soon();
    if (later.size) pending ??= setTimeout(async () => {
      const all = [...later];
      later.clear();
      for (const one of all) await one().catch(() => {});
      pending = null;
    }, 300);
  }));
  const ticking = setInterval(() => { if (job && !f.TERMINAL.has(job.status) && !document.hidden) draw(); }, 1000);
  page.onEnd(() => { clearInterval(ticking); clearTimeout(pending); });
}

// Frames of libraries are folded; the last line is the exception.
function drawTraceback(text) {
  const pre = h("pre", { class: "traceback", tabindex: 0, "aria-label": "Traceback" });
  const rows = cut(text, 20_000).trimEnd().split("\n");
  let hidden = [];
  let library = false;
  const flush = () => {
    if (!hidden.length) return;
    const kept = hidden;
    const frames = kept.filter((row) => /^\s+File "/.test(row)).length;
    const open = h("button", { type: "button", onclick: () => open.replaceWith(document.createTextNode(`${kept.join("\n")}\n`)) }, `${frames} ${frames === 1 ? "frame" : "frames"} of libraries hidden`);
    pre.append("  ", open, "\n");
    hidden = [];
  };
  rows.forEach((row, index) => {
    if (/^\s+File "/.test(row)) library = /site-packages|dist-packages|\/lib\/python3|\/bide\/server\/|<frozen/.test(row);
    else if (!/^\s/.test(row)) library = false;
    if (library) { hidden.push(row); return; }
    flush();
    const kind = index === rows.length - 1 ? "final" : /^\s+File "/.test(row) ? "own" : "";
    pre.append(h("span", { class: kind }, row), "\n");
  });
  flush();
  return pre;
}

// At most four round times within this many seconds.
function ticksOf(seconds) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].find((one) => seconds / one < 5) ?? seconds / 4;
  const found = [];
  for (let tick = step; tick < seconds * 0.999; tick += step) found.push(tick);
  return found;
}
