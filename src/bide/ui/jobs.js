// The list: search and filters are in the URL, rows update in place, pages follow a cursor.

import { ago, announce, bar, button, cut, empty, h, icon, keyed, linkButton, name, progressText, select, setText, statusWord } from "./dom.js";
import { bulkBar } from "./bulk.js";
import * as f from "./format.js";

const LIMIT = 50;
const NAMES = { status: "Status", kind: "Kind", queue: "Queue", label: "Label", code: "Error", createdAfter: "After", createdBefore: "Before" };
const ORDERS = [["newest", "Newest first"], ["oldest", "Oldest first"], ["longest", "Longest run"]];
const PERIODS = [["", "Created any time"], ["1", "Last hour"], ["24", "Last 24 h"], ["168", "Last 7 days"]];

export function show(page) {
  const { view, get, live, allows } = page;
  page.title("Jobs");
  let params = new URLSearchParams(page.params);
  const focusSearch = params.has("focus");
  params.delete("focus");
  let cursors = []; // of the pages before this one
  let next = null;
  let jobs = [];
  let kinds = [];
  let queues = [];
  let codes = {};
  let counted = null; // the filter whose matches were counted, when, and the count
  const selected = new Map(); // jobs by id; they may be on other pages
  let lastSelected = null; // the id at which a range begins

  // --- head, search, filters

  const total = h("span", { class: "count-note" });
  const input = h("input", { type: "text", id: "q", role: "combobox", "aria-expanded": "false", "aria-controls": "suggestions", "aria-autocomplete": "list", "aria-label": "Search jobs", spellcheck: "false", autocomplete: "off",
    placeholder: "Search: status:ERROR label.team:ops input.id:42, a label's value or the beginning of an id", value: params.get("q") ?? "" });
  const took = h("span", { class: "faint" });
  const clear = button("", { icon: "close", kind: "bare small", "aria-label": "Clear the search", onclick: () => { input.value = ""; commit(); input.focus(); } });
  const box = h("div", { class: "search" }, icon("search"), input, took, clear);
  const list = h("ul", { id: "suggestions", role: "listbox", "aria-label": "Suggestions" });
  const hint = (text, what) => h("span", null, text.split(" ").map((one) => h("kbd", null, one)), what);
  const popover = h("div", { class: "suggestions", hidden: true }, list, h("p", { class: "hints", "aria-hidden": "true" }, hint("↑ ↓", "choose"), hint("Tab", "accept"), hint("Enter", "search"), hint("Esc", "close")));
  const wrong = h("p", { class: "invalid-note", role: "alert", hidden: true });
  const filters = h("div", { class: "filters" });
  view.append(h("header", { class: "head" }, h("h1", null, "Jobs"), total, h("div", { class: "tools" }, allows("submit") && linkButton("Submit job", "#/submit", { icon: "plus", kind: "primary" }))),
    h("div", { class: "search-place" }, box, popover), wrong, filters);

  const change = (edit) => {
    bulk?.clear();
    edit(params);
    params.delete("cursor");
    cursors = [];
    page.setParams(params);
    drawFilters();
    reader.now();
  };
  const commit = () => {
    suggest.close();
    const q = input.value.trim();
    if (q === (params.get("q") ?? "")) return reader.now();
    return change(() => (q ? params.set("q", q) : params.delete("q")));
  };

  function drawFilters() {
    const chips = [];
    for (const [key, title] of Object.entries(NAMES)) {
      for (const value of params.getAll(key)) {
        const text = key === "status" ? f.word(value) : key.startsWith("created") ? f.local(value) : value;
        chips.push(h("span", { class: "chip set" }, title, h("b", null, name(text)), h("button", { type: "button", "aria-label": `Remove the filter ${title} ${cut(text, 60)}`, onclick: () => change(() => removeValue(params, key, value)) }, icon("close"))));
      }
    }
    const add = (key, title, options) => {
      const element = select(`Filter by ${title.toLowerCase()}`, [["", `+ ${title}`], ...options], "", (value) => change(() => (key === "status" ? params.append(key, value) : params.set(key, value))));
      element.className = "chip";
      return element;
    };
    const order = select("Order", ORDERS, params.get("order") ?? "newest", (value) => change(() => (value === "newest" ? params.delete("order") : params.set("order", value))));
    order.className = "chip order";
    filters.replaceChildren(...chips,
      add("status", "Status", Object.entries(f.WORDS).filter(([value]) => !params.getAll("status").includes(value))),
      !params.has("kind") && kinds.length ? add("kind", "Kind", kinds.map((one) => [one.kind, one.kind])) : "",
      !params.has("queue") && queues.length ? add("queue", "Queue", queues.map((one) => [one.name, one.name])) : "",
      !params.has("createdAfter") ? Object.assign(select("Created", PERIODS, "", (hours) => change(() => params.set("createdAfter", new Date(Date.now() - hours * 3600_000).toISOString()))), { className: "chip" }) : "", order);
  }

  // --- suggestions: fields first, then values

  const suggest = { at: -1, options: [], close() { popover.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); suggest.at = -1; } };
  const quoted = (value) => (/^[^\s":]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);
  function candidates(token) {
    const values = { kind: kinds.map((one) => one.kind), queue: queues.map((one) => one.name), status: Object.keys(f.WORDS), error: Object.keys(codes) };
    const [field, rest] = token.includes(":") ? [token.slice(0, token.indexOf(":")), token.slice(token.indexOf(":") + 1)] : [null, null];
    if (field in values) return values[field].filter((value) => value.toLowerCase().includes(rest.toLowerCase()) && value !== rest).map((value) => [`${field}:${quoted(value)}`, field === "error" ? `${f.count(codes[value])} in 24 h` : ""]);
    const fields = [["status:", "state of a job"], ["kind:", "kind of job"], ["queue:", "queue"], ["error:", "code of an error"], ["label.", "label, as label.team:ops"], ["step:", "step that began"], ["input.", "declared path into the input"]];
    const found = token ? fields.filter(([key]) => key.startsWith(token.toLowerCase())) : fields;
    const more = token.length > 1 ? [...Object.keys(codes).map((code) => ["error", code]), ...values.kind.map((one) => ["kind", one])].filter(([, value]) => value.toLowerCase().includes(token.toLowerCase())).map(([key, value]) => [`${key}:${quoted(value)}`, ""]) : [];
    return [...found, ...more];
  }
  function drawSuggestions() {
    const token = input.value.slice(0, input.selectionStart).split(/\s+/).at(-1);
    suggest.options = candidates(token).slice(0, 8);
    suggest.token = token;
    suggest.at = -1;
    popover.hidden = !suggest.options.length;
    input.setAttribute("aria-expanded", !popover.hidden);
    const typed = token.slice(token.indexOf(":") + 1).toLowerCase();
    // What was typed stands out.
    const marked = (text) => {
      const from = typed ? text.toLowerCase().indexOf(typed, token.includes(":") ? text.indexOf(":") + 1 : 0) : -1;
      return from < 0 ? name(text) : h("bdi", null, cut(text.slice(0, from)), h("mark", null, text.slice(from, from + typed.length)), cut(text.slice(from + typed.length), 300));
    };
    list.replaceChildren(...suggest.options.map(([text, note], index) => h("li", { role: "option", id: `option-${index}`, "aria-selected": "false",
      onpointerdown: (event) => { event.preventDefault(); accept(index); } }, h("code", null, marked(text)), h("span", { class: "note" }, note))));
  }
  function mark(index) {
    suggest.at = (index + suggest.options.length) % suggest.options.length;
    [...list.children].forEach((child, at) => child.setAttribute("aria-selected", at === suggest.at));
    input.setAttribute("aria-activedescendant", `option-${suggest.at}`);
  }
  function accept(index) {
    const [text] = suggest.options[index];
    const end = input.selectionStart;
    const whole = /[:.]$/.test(text) ? text : `${text} `;
    input.value = input.value.slice(0, end - suggest.token.length) + whole + input.value.slice(end);
    input.focus();
    const at = end - suggest.token.length + whole.length;
    input.setSelectionRange(at, at);
    drawSuggestions();
  }
  input.addEventListener("input", drawSuggestions);
  input.addEventListener("focus", drawSuggestions);
  input.addEventListener("blur", () => suggest.close());
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { if (suggest.at >= 0) { event.preventDefault(); accept(suggest.at); } else commit(); }
    else if (event.key === "Escape") { if (popover.hidden) input.blur(); else suggest.close(); }
    else if (event.key === "Tab" && !popover.hidden && suggest.at >= 0) { event.preventDefault(); accept(suggest.at); }
    else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && suggest.options.length) { event.preventDefault(); mark(suggest.at + (event.key === "ArrowDown" ? 1 : suggest.at < 0 ? 0 : -1)); }
  });
  page.onKey("/", () => { input.focus(); input.select(); });

  // --- rows

  const body = h("tbody");
  const whole = h("input", { type: "checkbox", "aria-label": "Select this page", onchange: () => { for (const job of jobs) choose(job, whole.checked); drawSelection(); } });
  const table = h("table", { class: "jobs-table" }, h("caption", { class: "sr" }, "Jobs"), h("thead", null, h("tr", null,
    allows("control") && h("th", { scope: "col", class: "col-select" }, h("label", null, whole)),
    h("th", { scope: "col", class: "col-status" }, "Status"), h("th", { scope: "col", class: "col-job" }, "Job"), h("th", { scope: "col", class: "doing-cell" }, "Progress or error"), h("th", { scope: "col", class: "col-attempts number" }, "Attempts"),
    h("th", { scope: "col", class: "col-queue" }, "Queue"), h("th", { scope: "col", class: "col-labels" }, "Labels"), h("th", { scope: "col", class: "col-run number" }, "Run time"), h("th", { scope: "col", class: "col-created number" }, "Created"))), body);
  const newer = button("Newer", { kind: "small", onclick: () => { const before = cursors.pop(); if (before) params.set("cursor", before); else params.delete("cursor"); page.setParams(params); reader.now(); } });
  const older = button("Older", { kind: "small", onclick: () => { cursors.push(params.get("cursor") ?? ""); params.set("cursor", next); page.setParams(params); reader.now(); scrollTo(0, 0); } });
  const shown = h("span", { class: "faint" });
  const arrived = button("New jobs: show them", { kind: "small", hidden: true, onclick: () => { arrived.hidden = true; shownQuery = null; reader.now(); } });
  const none = h("div", { hidden: true });
  const bulk = !allows("control") ? null : bulkBar(page, { params: () => params, selected, changed: () => { focusRow(lastSelected); reader.soon(); }, cleared: () => drawSelection() });
  const foot = h("footer", null, shown, arrived, h("span", { class: "buttons tight" }, newer, older));
  const panel = h("section", { class: "panel", "aria-label": "Jobs" }, h("div", { class: "scroller" }, table), none, foot);
  view.append(panel, bulk ?? "");

  // --- selection

  const choose = (job, on) => (on ? selected.set(job.jobId, job) : selected.delete(job.jobId));
  const focusRow = (id) => body.querySelector(`tr[data-id="${id}"]`)?.focus({ preventScroll: true });
  function toggle(job, range) {
    const on = !selected.has(job.jobId);
    const [from, to] = [jobs.findIndex((one) => one.jobId === lastSelected), jobs.findIndex((one) => one.jobId === job.jobId)];
    if (range && from >= 0) for (const one of jobs.slice(Math.min(from, to), Math.max(from, to) + 1)) choose(one, true);
    else choose(job, on);
    lastSelected = job.jobId;
    drawSelection();
  }
  function drawSelection() {
    if (!bulk) return;
    const everything = bulk.all();
    for (const row of body.children) {
      const on = everything || selected.has(row.dataset.id);
      row.classList.toggle("chosen", on);
      row.parts.check.checked = on;
      row.parts.check.disabled = everything;
    }
    const here = jobs.filter((job) => selected.has(job.jobId)).length;
    whole.checked = everything || (here > 0 && here === jobs.length);
    whole.indeterminate = !everything && here > 0 && here < jobs.length;
    whole.disabled = everything;
    view.classList.toggle("selecting", everything || selected.size > 0);
    bulk.draw();
  }

  function create(job) {
    const parts = { status: h("td", { class: "col-status" }), doing: h("td", { class: "doing-cell" }), attempts: h("td", { class: "col-attempts number" }), run: h("td", { class: "col-run number" }) };
    const fixed = new Set(params.getAll("label"));
    const labels = Object.entries(job.labels ?? {}).filter(([key, value]) => key !== "name" && !fixed.has(`${key}:${value}`)).slice(0, 2);
    const id = h("button", { type: "button", class: "id", title: `Copy ${job.jobId}`, onclick: (event) => { event.stopPropagation(); navigator.clipboard?.writeText(job.jobId); announce("Copied"); } }, f.shortId(job.jobId));
    // A click with Shift selects a range.
    parts.check = h("input", { type: "checkbox", "aria-label": `Select ${cut(f.jobName(job), 100)}`, onclick: (event) => toggle(row.parts.job, event.shiftKey) });
    const row = h("tr", { data: { id: job.jobId }, tabindex: -1 }, allows("control") && h("td", { class: "col-select" }, h("label", null, parts.check)), parts.status,
      h("th", { scope: "row", class: "col-job" }, h("span", { class: "two" }, h("a", { href: `#/jobs/${job.jobId}` }, name(f.jobName(job))), h("span", null, id, job.labels?.name ? h("span", { class: "faint" }, " · ", name(job.kind)) : null))),
      parts.doing, parts.attempts, h("td", { class: "col-queue" }, name(job.queue)), h("td", { class: "col-labels labels" }, labels.map(([key, value]) => h("span", { class: "label", title: cut(`${key}: ${value}`, 300) }, name(key), h("b", null, name(value))))),
      parts.run, h("td", { class: "col-created number faint" }, ago(job.createdAt)));
    row.addEventListener("click", (event) => { if (!event.target.closest("a, button, .col-select") && !getSelection().toString()) page.go(`#/jobs/${job.jobId}`); });
    return Object.assign(row, { parts });
  }

  function update(row, job) {
    const { parts } = row;
    if (parts.shown !== job.status) parts.status.replaceChildren(statusWord(job.status));
    const active = !f.TERMINAL.has(job.status) && job.status !== "PENDING";
    if (active) {
      if (!parts.bar || parts.shown !== job.status) {
        Object.assign(parts, { bar: bar(`Progress of ${f.jobName(job)}`), what: h("span", { class: "what" }), percent: h("span", { class: "percent" }) });
        parts.doing.replaceChildren(h("span", { class: "with-bar" }, parts.what, parts.bar, parts.percent));
      }
      setText(parts.what, progressText(job));
      setText(parts.percent, f.percent(job.progress?.percent));
      parts.bar.show(job.status, job.progress?.percent ?? null);
    } else if (job.error) {
      parts.doing.replaceChildren(h("span", { class: "two" }, h("span", null, h("span", { class: "code-name" }, name(job.error.code)), job.error.failedStep && h("span", { class: "faint" }, " in ", name(job.error.failedStep))), h("span", { class: "faint" }, name(job.error.message))));
    } else {
      parts.doing.replaceChildren(h("span", { class: "faint" }, job.status === "PENDING" ? (job.runAt && new Date(job.runAt) > Date.now() ? `starts ${f.local(job.runAt)}` : "waits for a worker") : ""));
    }
    parts.shown = job.status;
    setText(parts.attempts, job.attempt ? `${job.attempt} / ${job.maxAttempts}` : f.NONE);
    parts.job = job;
    setText(parts.run, job.startedAt ? f.duration(job.finishedAt ? f.seconds(job.startedAt, job.finishedAt) : Math.floor(f.since(job.startedAt))) : f.NONE);
  }
  const draw = () => {
    keyed(body, jobs, (job) => job.jobId, create, update);
    for (const job of jobs) if (selected.has(job.jobId)) selected.set(job.jobId, job);
    drawSelection();
  };
  // Rows never move under the pointer, the focus or a selection.
  const isHeld = () => body.matches(":hover") || body.contains(document.activeElement) || view.classList.contains("selecting");

  let shownQuery = null;
  async function read() {
    const query = new URLSearchParams(params);
    query.set("limit", LIMIT);
    // Counting costs more than a page, so it is done for a new filter and then every ten seconds.
    const filter = new URLSearchParams(params);
    filter.delete("cursor");
    filter.delete("order");
    const fresh = counted?.filter === filter.toString() && Date.now() - counted.at < 10_000;
    if (!fresh) query.set("count", "true");
    const started = performance.now();
    const dim = setTimeout(() => body.classList.add("stale-rows"), 300);
    try {
      const found = await get(`/jobs?${query}`);
      const same = shownQuery === params.toString() && jobs.length > 0;
      const news = found.jobs.some((job) => !jobs.some((one) => one.jobId === job.jobId));
      if (same && news && isHeld()) {
        const by = new Map(found.jobs.map((job) => [job.jobId, job]));
        jobs = jobs.map((job) => by.get(job.jobId) ?? job);
        arrived.hidden = false;
      } else {
        ({ jobs, next } = found);
        shownQuery = params.toString();
        arrived.hidden = true;
      }
      wrong.hidden = true;
      box.classList.remove("invalid");
      setText(took, `${Math.round(performance.now() - started)}\u202fms`);
      if (found.count) counted = { filter: filter.toString(), at: Date.now(), ...found.count };
      const number = f.count(counted.value, counted.more);
      setText(total, `${number} ${hasFilter() ? "match" : counted.value === 1 ? "job" : "jobs"}`);
      const before = cursors.length * LIMIT;
      setText(shown, jobs.length ? (params.has("cursor") && !cursors.length ? `${jobs.length} jobs` : `${before + 1} – ${before + jobs.length} of ${number}`) : "");
    } catch (error) {
      if (!error.problem) throw error;
      box.classList.toggle("invalid", error.status === 422);
      wrong.hidden = false;
      setText(wrong, error.problem.detail ?? error.message);
    } finally {
      clearTimeout(dim);
      body.classList.remove("stale-rows");
    }
    clear.hidden = !input.value;
    newer.disabled = !params.has("cursor");
    older.disabled = !next;
    draw();
    drawNone();
  }

  const hasFilter = () => ["q", ...Object.keys(NAMES)].some((key) => params.has(key));
  function drawNone() {
    const filtered = hasFilter();
    none.hidden = jobs.length > 0 || !wrong.hidden;
    table.hidden = !none.hidden;
    foot.hidden = table.hidden && !params.has("cursor");
    if (none.hidden) return;
    const terms = [...params].filter(([key]) => key === "q" || key in NAMES);
    none.replaceChildren(filtered ? empty("No job matches", "Remove a filter:", h("p", { class: "filters centered" }, terms.map(([key, value]) => button(`${key === "q" ? "Search" : NAMES[key]} ${cut(value, 60)}`, { icon: "close", kind: "small", onclick: () => { if (key === "q") input.value = ""; change(() => removeValue(params, key, value)); } }))))
      : empty("No jobs yet", "Submit the first job, and it appears here within a second.", allows("submit") && linkButton("Submit job", "#/submit", { kind: "primary", icon: "plus" })));
  }

  // --- keyboard

  const step = (by) => {
    const rows = [...body.children];
    const at = rows.indexOf(document.activeElement?.closest?.("tr"));
    rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))]?.focus();
  };
  page.onKey("j", () => step(1));
  page.onKey("k", () => step(-1));
  const rowAt = (event) => jobs.find((job) => job.jobId === event.target.closest?.("tr[data-id]")?.dataset.id);
  if (bulk) {
    page.onKey("x", (event) => rowAt(event) && toggle(rowAt(event), false));
    page.onKey("X", (event) => rowAt(event) && toggle(rowAt(event), true));
    page.onKey("Escape", () => { if (!bulk.hidden) bulk.clear(); });
  }
  page.onKey("Enter", (event) => {
    const row = event.target.closest?.("tr[data-id]");
    if (event.target.matches("a, button")) event.target.click();
    else if (row) page.go(`#/jobs/${row.dataset.id}`);
  });

  // --- live

  const touched = new Set();
  let renewing = null;
  async function renew() {
    renewing = null;
    const ids = [...touched].slice(0, 100);
    touched.clear();
    if (!ids.length) return;
    const { jobs: found } = await get(`/jobs?${ids.map((id) => `id=${id}`).join("&")}`).catch(() => ({ jobs: null }));
    if (!found) return;
    const by = new Map(found.map((job) => [job.jobId, job]));
    jobs = jobs.filter((job) => !ids.includes(job.jobId) || by.has(job.jobId)).map((job) => by.get(job.jobId) ?? job);
    draw();
    drawNone();
  }
  page.onEnd(live.listen((events) => {
    const known = new Map(jobs.map((job) => [job.jobId, job]));
    let moved = false;
    let others = false;
    for (const event of events) {
      const job = known.get(event.jobId);
      if (event.type === "reset") others = true;
      else if (!job) others ||= event.type === "status";
      else if (event.type === "progress") { job.progress = event.job.progress; moved = true; }
      else touched.add(event.jobId);
    }
    if (touched.size) renewing ??= setTimeout(renew, 400);
    if (moved) draw();
    if (!others || params.has("cursor")) return;
    if (isHeld()) arrived.hidden = false;
    else reader.soon();
  }));
  page.onEnd(() => clearTimeout(renewing));
  page.onChange((changed) => {
    const focus = changed.has("focus");
    params = new URLSearchParams(changed);
    params.delete("focus");
    if (focus) { page.setParams(params); input.focus(); return; }
    bulk?.clear();
    cursors = [];
    input.value = params.get("q") ?? "";
    drawFilters();
    reader.now();
  });
  drawFilters();
  const reader = page.refresh(read, 5);
  Promise.all([get("/kinds"), page.isAdmin ? get("/queues") : { queues: [] }, get("/stats").catch(() => ({ total: { failed: {} } }))]).then(([one, two, three]) => {
    kinds = one.kinds;
    queues = two.queues;
    codes = three.total.failed;
    drawFilters();
  }).catch(() => {});
  if (focusSearch) { page.setParams(params); input.focus(); }
}

function removeValue(params, key, value) {
  const rest = params.getAll(key).filter((one) => one !== value);
  params.delete(key);
  for (const one of rest) params.append(key, one);
}
