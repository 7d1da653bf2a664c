// Elements of the dashboard. Data is only ever inserted as text: no function here takes HTML.

import * as f from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST = 2000; // characters of one text; more would slow the page down

export const cut = (value, most = MOST) => {
  const text = String(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
};

function apply(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child == null || child === false) continue;
    element.append(child instanceof Node ? child : cut(child));
  }
  return element;
}

export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  if (props) apply(element, props);
  return append(element, children);
}

export function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props ?? {})) if (value != null && value !== false) element.setAttribute(name, value);
  return append(element, children);
}

export const setText = (element, text) => {
  const wanted = cut(text);
  if (element.textContent !== wanted) element.textContent = wanted;
  return element;
};

// A name that a caller has chosen: isolated, so that it cannot reorder the text around it.
export const name = (text, props) => h("bdi", props, cut(text, 300));

// --- icons: 16 × 16, drawn with lines unless they are filled

const ICONS = {
  overview: "M1.5 8h3l2-5 3 10 2-5h3",
  jobs: "M6 3.5h8.5M6 8h8.5M6 12.5h8.5M2 3.5h.5M2 8h.5M2 12.5h.5",
  queues: "M8 1.8 14.5 5 8 8.2 1.5 5zM1.5 8 8 11.2 14.5 8M1.5 11 8 14.2 14.5 11",
  workers: "M4 4h8v8H4zM6.5 1.5V4M9.5 1.5V4M6.5 12v2.5M9.5 12v2.5M1.5 6.5H4M1.5 9.5H4M12 6.5h2.5M12 9.5h2.5M6.8 6.8h2.4v2.4H6.8z",
  webhooks: "M6.5 9.5a3 3 0 0 0 4.2 0l2.6-2.6a3 3 0 0 0-4.2-4.2L8 3.8M9.5 6.5a3 3 0 0 0-4.2 0L2.7 9.1a3 3 0 0 0 4.2 4.2L8 12.2",
  more: "M2 4h12M2 8h12M2 12h12",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.6 10.6 14 14",
  plus: "M8 3v10M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  warning: "M8 2 15 14H1zM8 6.5v3.5M8 12v.2",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M4.5 3v10l8-5z",
  stop: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM3.8 3.8l8.4 8.4",
  download: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  file: "M4 1.8h5l3.2 3.2v9.2H4zM9 1.8V5h3.2",
  edit: "M3 13l.6-2.6 7.6-7.6 2 2-7.6 7.6z",
  moon: "M13 9.8A5.5 5.5 0 0 1 6.2 3 5.5 5.5 0 1 0 13 9.8z",
  trash: "M2.5 4.5h11M6 4V2.5h4V4M4 4.5l.6 9h6.8l.6-9",
  up: "M3.5 10 8 5.5 12.5 10",
  out: "M6.5 2.5h-4v11h4M6.5 8h7.5M11 5l3 3-3 3",
  right: "M6 3.5 10.5 8 6 12.5",
  uploads: "M8 10.5V2.5M4.8 5.5 8 2.3l3.2 3.2M2.5 10v3.5h11V10",
  priority: "M4.5 13V3.5M2 6l2.5-2.5L7 6M9 4h5M9 8h3.5M9 12h2",
  upload: "M8 10.5V2.5M4.8 5.5 8 2.3l3.2 3.2M2.5 10v3.5h11V10",
  check: "M3 8.5 6.5 12 13 4.5",
};

export function icon(which, props) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", ...props },
    svg("path", { d: ICONS[which], fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-linecap": "round", "stroke-linejoin": "round" }));
}

// Each status has an outline of its own, so that it is recognisable without colour.
export function statusIcon(status) {
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 1.7, "stroke-linecap": "round", "stroke-linejoin": "round" };
  const mark = { ...line, stroke: "var(--surface)", "stroke-width": 1.7 };
  const parts = {
    UPLOADING: () => [svg("path", { ...line, d: ICONS.upload })],
    PENDING: () => [svg("circle", { ...line, cx: 8, cy: 8, r: 5.8, "stroke-dasharray": "2.2 2.35" })],
    PROCESSING: () => [svg("circle", { ...line, cx: 8, cy: 8, r: 5.6, "stroke-width": 2, opacity: 0.28 }),
      svg("path", { ...line, class: "turning", d: "M8 2.4A5.6 5.6 0 0 1 12.8 10.8", "stroke-width": 2 })],
    RETRYING: () => [svg("path", { ...line, d: ICONS.retry })],
    DONE: () => [svg("circle", { cx: 8, cy: 8, r: 6.5, fill: "currentColor" }), svg("path", { ...mark, d: "M5.2 8.2 7.2 10.2 10.9 6.2" })],
    PARTIAL_SUCCESS: () => [svg("circle", { ...line, cx: 8, cy: 8, r: 5.8 }), svg("path", { d: "M8 2.2a5.8 5.8 0 0 0 0 11.6z", fill: "currentColor" })],
    ERROR: () => [svg("path", { d: "M8 .9 15.1 8 8 15.1.9 8z", fill: "currentColor" }), svg("path", { ...mark, d: "M6.2 6.2l3.6 3.6M9.8 6.2 6.2 9.8" })],
    CANCELLED: () => [svg("path", { ...line, d: ICONS.stop })],
  };
  return svg("svg", { class: `icon s-${status}`, viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, (parts[status] ?? parts.PENDING)());
}

export const statusWord = (status) => h("span", { class: `status s-${status}`, title: status }, statusIcon(status), f.word(status));
export const badge = (status, big) => h("span", { class: `badge s-${status}${big ? " big" : ""}`, title: status }, statusIcon(status), f.word(status));

// --- time: the text is relative or a clock time; hovering shows local time, UTC and age

export function ago(instant) {
  if (instant == null) return document.createTextNode(f.NONE);
  return h("time", { datetime: instant, class: "ago" }, `${f.past(f.since(instant))} ago`);
}
export const at = (instant, text) => (instant == null ? document.createTextNode(f.NONE) : h("time", { datetime: instant }, text ?? f.clock(instant)));

export function refreshTimes(root = document) {
  for (const element of root.querySelectorAll("time.ago")) setText(element, `${f.past(f.since(element.dateTime))} ago`);
}

function row(term, value) {
  return [h("dt", null, term), h("dd", null, value)];
}

export function startTooltips() {
  const tip = h("dl", { class: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  const show = ({ target }) => {
    const element = target.closest?.("time[datetime]");
    tip.hidden = !element;
    if (!element) return;
    const instant = element.dateTime;
    const future = new Date(instant) > Date.now();
    const distance = Math.abs(Date.now() - new Date(instant)) / 1000;
    tip.replaceChildren(...row("Local", f.local(instant)), ...row("UTC", f.utc(instant)), ...row(future ? "In" : "Ago", f.age(distance)));
    const box = element.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
    tip.style.top = `${below ? box.bottom + 6 : box.top - 6 - tip.offsetHeight}px`;
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);
}

// --- progress

export function bar(label) {
  const fill = h("span", { class: "fill" });
  const element = h("div", { class: "bar", role: "progressbar", "aria-label": cut(label, 100), "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  element.show = (status, value, text) => {
    element.className = `bar f-${status}`;
    const unknown = value == null && !f.TERMINAL.has(status) && status !== "PENDING";
    element.classList.toggle("unknown", unknown);
    const part = status === "DONE" ? 1 : Math.max(0, Math.min(1, (value ?? 0) / 100));
    fill.style.transform = unknown ? "" : `scaleX(${part})`;
    if (unknown) element.removeAttribute("aria-valuenow");
    else element.setAttribute("aria-valuenow", Math.round(part * 100));
    element.setAttribute("aria-valuetext", text ?? (unknown ? "unknown" : f.percent(value, status === "DONE")));
    return element;
  };
  return element;
}

// A bar that shows a share, not progress.
export function meter(part, status = "PROCESSING") {
  const fill = h("span", { class: "fill" });
  fill.style.transform = `scaleX(${Math.max(0, Math.min(1, part || 0))})`;
  return h("div", { class: `bar f-${status}`, "aria-hidden": "true" }, fill);
}

// What a job is doing, as one line.
export function progressText(job) {
  const { progress, status, error } = job;
  if (status === "RETRYING") return `Attempt ${job.attempt} of ${job.maxAttempts} failed${error ? ` · ${error.code}` : ""}`;
  const ended = (job.children ?? []).filter((child) => child.status).length;
  if (job.children?.length > ended && status === "PROCESSING") return `Waits for its children · ${f.count(ended)} of ${f.count(job.children.length)} ended`;
  if (!progress) return status === "PENDING" ? "Waiting to start" : status === "PROCESSING" ? "Running" : "";
  const { done, total, unit, message, step } = progress;
  const amount = done == null ? "" : unit === "bytes" ? `${f.size(done)}${total == null ? "" : ` of ${f.size(total)}`}`
    : `${f.count(done)}${total == null ? "" : ` of ${f.count(total)}`}${unit ? ` ${unit}` : ""}`;
  return [message || step || "", amount].filter(Boolean).join(" · ") || "Running";
}

// When it ends: the text, and below it the range. Never invented.
export function remaining(job) {
  if (job.status === "RETRYING" && job.nextAttemptAt) {
    const wait = (new Date(job.nextAttemptAt) - Date.now()) / 1000;
    return [wait > 0 ? `retry in ${f.age(Math.ceil(wait))}` : "retry now", f.clock(job.nextAttemptAt)];
  }
  if (job.cancelRequested) return ["cancelling", `attempt ${job.attempt}`];
  if (!job.eta?.finishAt) return ["no estimate", job.attempt ? `attempt ${job.attempt}` : f.NONE];
  const { finishAt, low, high } = job.eta;
  // The range of a job that ends soon needs seconds.
  const show = (new Date(high ?? finishAt) - new Date(low ?? finishAt)) / 1000 < 90 ? f.clock : f.minute;
  const [from, to] = [show(low ?? finishAt), show(high ?? finishAt)];
  return [f.left((new Date(finishAt) - Date.now()) / 1000), from === to ? from : `${from} – ${to}`];
}

// --- panels, lists, tables

let ids = 0;
export function panel(title, { note, aside, class: more } = {}) {
  const id = `panel-${(ids += 1)}`;
  const noteElement = h("span", { class: "note" }, note);
  const asideElement = h("div", { class: "aside" }, aside);
  const body = h("div", { class: "body" });
  const element = h("section", { class: `panel ${more ?? ""}`, "aria-labelledby": id },
    h("header", null, h("h2", { id }, title), noteElement, asideElement), body);
  return Object.assign(element, { body, noteElement, asideElement, heading: element.querySelector("h2") });
}

// Updates the children of `parent` in place, by key: elements stay, so that focus and pointer stay on them.
export function keyed(parent, items, key, create, update) {
  const old = new Map([...parent.children].map((child) => [child._key, child]));
  const wanted = items.map((item) => {
    const id = key(item);
    const element = old.get(id) ?? Object.assign(create(item), { _key: id });
    old.delete(id);
    update?.(element, item);
    return element;
  });
  for (const element of old.values()) element.remove();
  wanted.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
}

export const button = (text, { icon: which, kind = "", ...props } = {}) =>
  h("button", { type: "button", class: `button ${kind}`, ...props }, which && icon(which), text && h("span", null, text));
export const linkButton = (text, href, { icon: which, kind = "", ...props } = {}) =>
  h("a", { class: `button ${kind}`, href, ...props }, which && icon(which), text && h("span", null, text));

export function segments(label, options, chosen, choose) {
  const group = h("div", { class: "segments", role: "group", "aria-label": label });
  const show = (value) => {
    for (const child of group.children) child.setAttribute("aria-pressed", child.dataset.value === value);
  };
  group.append(...options.map(([value, text]) => h("button", { type: "button", data: { value }, onclick: () => { show(value); choose(value); } }, text)));
  show(chosen);
  return Object.assign(group, { show });
}

export function select(label, options, chosen, choose) {
  const element = h("select", { "aria-label": label, onchange: () => choose(element.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return element;
}

export function copyButton(text, label) {
  const element = h("button", { type: "button", class: "copy", "aria-label": label, title: label }, icon("copy"));
  element.addEventListener("click", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    await navigator.clipboard?.writeText(typeof text === "function" ? text() : text);
    element.replaceChildren(icon("check"));
    announce("Copied");
    setTimeout(() => element.replaceChildren(icon("copy")), 1200);
  });
  return element;
}

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("div", { class: "drawing", "aria-hidden": "true" }, h("i"), h("i")), h("p", { class: "title" }, title), text && h("p", null, text), more);
}

// --- announcements, toasts, dialogs

export function announce(text) {
  setText(document.getElementById("announcer"), text);
}

let toastTimer;
export function toast(text, { status = "DONE", href, link, detail } = {}) {
  const place = document.getElementById("toasts");
  clearTimeout(toastTimer);
  const close = button("", { icon: "close", kind: "bare", "aria-label": "Close", onclick: () => place.replaceChildren() });
  place.replaceChildren(h("div", { class: "toast", role: status === "ERROR" ? "alert" : "status" },
    statusIcon(status), h("div", null, h("p", null, text), detail && h("p", { class: "faint" }, cut(detail, 600))), href && h("a", { href }, link), close));
  if (status !== "ERROR") toastTimer = setTimeout(() => place.replaceChildren(), 6000);
}

export function toastError(error) {
  const problem = error.problem;
  const trace = problem?.traceId ? ` Trace ${problem.traceId}` : "";
  toast(problem?.title ?? "The service did not answer", { status: "ERROR", detail: `${problem?.detail ?? error.message}${trace}` });
}

// Asks; the safe button is first and has the focus. Resolves with true for the other one.
export function confirm(question, consequence, { yes, no, danger }) {
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const safe = button(no, { onclick: () => close(false), autofocus: true });
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "question" },
      h("h2", { id: "question" }, question), h("p", null, consequence),
      h("div", { class: "buttons" }, safe, button(yes, { kind: danger ? "danger" : "primary", onclick: () => close(true) })));
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); close(false); });
    document.body.append(dialog);
    dialog.showModal();
    safe.focus();
  });
}

// --- JSON as text with colours

export function json(value, most = 40_000) {
  const text = JSON.stringify(value, null, 2) ?? "";
  const pre = h("pre", { class: "json", tabindex: 0 });
  const shown = text.slice(0, most);
  const tokens = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)/g;
  let last = 0;
  for (const match of shown.matchAll(tokens)) {
    pre.append(shown.slice(last, match.index));
    last = match.index + match[0].length;
    if (match[1] === '"[secret]"' && !match[2]) pre.append(h("span", { class: "secret" }, "hidden (secret)"));
    else pre.append(h("span", { class: match[2] ? "name" : match[1] ? "text" : "number" }, match[1] ?? match[3]), match[2] ?? "");
  }
  pre.append(shown.slice(last), text.length > most ? "\n… cut" : "");
  return pre;
}
