// The shell: navigation, router, keyboard, theme and the state of the connection.
// Pages are modules that export `show(context)`, loaded when they are first opened.

import { Client, ProblemError } from "./bide.js";
import { announce, button, h, icon, refreshTimes, setText, startTooltips, toastError } from "./dom.js";
import * as f from "./format.js";
import { Live } from "./live.js";
import { Session } from "./session.js";

const root = document.documentElement;
const main = document.getElementById("main");
const nav = document.getElementById("nav");
const base = new Client().url.replace(/\/$/, "");
const session = new Session(base);
await session.start();
const client = new Client(undefined, { fetch: (url, init) => session.fetch(url, init) });
const live = new Live(base, session.allows("admin"));
session.onReturn = () => live.retryNow();
// Whether the page offers what needs this scope.
const allows = (scope) => session.allows(scope) && (scope === "read" || root.dataset.mode !== "read-only");
const readOnly = !["submit", "control", "admin"].some(allows);
const isAdmin = session.allows("admin");

const ADMIN = ["queues", "workers"]; // pages that need the scope admin
const PAGES = [
  ["overview", "Overview", "#/"],
  ["jobs", "Jobs", "#/jobs"],
  ["queues", "Queues", "#/queues"],
  ["workers", "Workers", "#/workers"],
  ["uploads", "Uploads", "#/uploads"],
  ["webhooks", "Webhooks", "#/webhooks"],
].filter(([id]) => isAdmin || !ADMIN.includes(id));
const MODULES = {
  overview: () => import("./overview.js"),
  jobs: () => import("./jobs.js"),
  job: () => import("./job.js"),
  queues: () => import("./queues.js"),
  workers: () => import("./workers.js"),
  uploads: () => import("./uploads.js"),
  webhooks: () => import("./webhooks.js"),
  submit: () => import("./submit.js"),
};

// Every request of the dashboard is one of `client`. A failed one is not repeated: pages are read again soon, and an action
// shows its problem. Paths begin after the path where the service is mounted.
const request = (method, path, options) => client.json(method, base + path, { retryFor: 0, headers: { Accept: "application/json" }, ...options });
const get = (path, options) => request("GET", path, options);
const post = (path, json, options) => request("POST", path, { json, ...options });
const remove = (path) => client.request("DELETE", base + path, { retryFor: 0 });
const read = (path) => client.request("GET", base + path, { retryFor: 0 });

// --- the shell

const notes = new Map();
const more = h("div", { class: "menu", id: "more", hidden: true });

function navLink([id, text, href]) {
  const note = h("span", { class: "note" });
  notes.set(id, note);
  return h("a", { href, data: { page: id }, title: text }, icon(id), h("span", { class: "word" }, text), note);
}

const THEMES = { system: "System theme", light: "Light theme", dark: "Dark theme" };
const chosenTheme = () => root.dataset.theme ?? "system";
function setTheme(theme) {
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  try {
    localStorage.setItem("bide-theme", theme);
  } catch { /* storage is blocked: the choice lasts as long as the page */ }
  setText(themeWord, THEMES[theme]);
  announce(THEMES[theme]);
}
const themeWord = h("span", { class: "word" }, THEMES[chosenTheme()]);
const nextTheme = () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(chosenTheme()) + 1) % names.length]);
};

const dot = h("span", { class: "dot" });
const connection = h("span", { class: "word" });
const rate = h("span", { class: "note" });

function buildNav() {
  const links = PAGES.map(navLink);
  const moreButton = h("button", { type: "button", class: "more", "aria-expanded": "false", "aria-controls": "more",
    onclick: () => { more.hidden = !more.hidden; moreButton.setAttribute("aria-expanded", !more.hidden); } }, icon("more"), h("span", { class: "word" }, "More"));
  nav.append(
    h("div", { class: "brand" }, h("a", { href: "#/", "aria-label": "bide: overview" }, h("img", { src: `${base}/ui/icon.svg`, alt: "", width: 22, height: 22 }), h("b", { class: "word" }, "bide")),
      h("span", { class: "note" }, root.dataset.version),
      h("span", { class: "quick" }, h("a", { href: "#/jobs?focus=1", "aria-label": "Search jobs" }, icon("search")), allows("submit") && h("a", { href: "#/submit", "aria-label": "Submit a job" }, icon("plus")))),
    h("div", { class: "links" }, links, moreButton),
    h("div", { class: "foot" },
      readOnly && h("p", null, h("span", { class: "tag" }, "Read-only")),
      session.isNeeded && h("p", null, h("button", { type: "button", class: "bare", onclick: () => session.askSignOut(), title: `Signed in with ${session.subject}, tenant ${session.tenant}` }, icon("out"), h("span", { class: "word" }, "Sign out"))),
      h("p", { class: "connection" }, dot, connection, rate),
      h("p", { class: "word" }, `Times in ${f.zone()}`),
      h("p", null, h("button", { type: "button", class: "bare", onclick: nextTheme, title: "Change the theme" }, icon("moon"), themeWord),
        h("button", { type: "button", class: "key", onclick: showKeys, "aria-label": "Keyboard shortcuts" }, "?"))));
  more.append(...PAGES.slice(3).map(([id, text, href]) => h("a", { href }, icon(id), text)),
    h("a", { href: `${base}/docs` }, icon("file"), "HTTP interface"),
    h("button", { type: "button", onclick: nextTheme }, icon("moon"), "Change the theme"));
  if (session.isNeeded) more.append(h("button", { type: "button", onclick: () => session.askSignOut() }, icon("out"), "Sign out"));
  nav.after(more);
}

live.onState(({ state, lastAt, perSecond }) => {
  root.dataset.connection = state;
  const stale = lastAt ? ` last update ${f.clock(lastAt)}` : "";
  setText(connection, { connecting: "Connecting…", live: "Live", reconnecting: `Reconnecting…${stale}`, offline: `Offline${lastAt ? `,${stale}` : ""}` }[state]);
  setText(rate, state === "live" && perSecond ? `${f.count(perSecond)} events/s` : "");
});

// Numbers beside the navigation, from the queues and workers.
async function refreshNav() {
  if (document.hidden) return;
  const paths = [isAdmin && "/queues", isAdmin && "/workers", "/uploads?status=UPLOADING"];
  const [queues, workers, uploads] = await Promise.all(paths.map((path) => (path ? get(path).catch(() => null) : null)));
  const running = queues?.queues.reduce((sum, queue) => sum + queue.running, 0);
  if (queues) setText(notes.get("jobs"), running ? `${f.count(running)} running` : "");
  if (queues) setText(notes.get("queues"), queues.queues.length || "");
  if (workers) setText(notes.get("workers"), workers.workers.length || "");
  if (uploads) setText(notes.get("uploads"), uploads.uploads.length ? f.count(uploads.uploads.length, uploads.next) : "");
}

// --- router

let current = { end: [], keys: {}, id: null };
let opened = 0;

function route() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const params = new URLSearchParams(query);
  if (parts[0] === "jobs" && parts[1]) return ["job", parts[1], params];
  const known = parts[0] in MODULES && parts[0] !== "job" && (isAdmin || !ADMIN.includes(parts[0]));
  return [known ? parts[0] : "overview", null, params];
}

async function open() {
  if (location.hash === "#main") return main.focus();
  const turn = (opened += 1);
  const [id, arg, params] = route();
  more.hidden = true;
  if (current.id === id && current.arg === arg && current.change) return current.change(params);
  for (const end of current.end) end();
  const page = (current = { id, arg, end: [], keys: {}, change: null });
  for (const link of nav.querySelectorAll("a[data-page]")) {
    if (link.dataset.page === (id === "job" ? "jobs" : id)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  nav.querySelector(".more").classList.toggle("current", PAGES.slice(3).some(([one]) => one === id));
  const { show } = await MODULES[id]();
  if (turn !== opened) return undefined;
  const view = h("div", { class: `page ${id}` });
  main.replaceChildren(view);
  scrollTo(0, 0);
  const context = {
    client, live, get, post, remove, read, params, arg, view, allows, isAdmin, readOnly, base,
    go: (hash) => { location.hash = hash; },
    // Changes the address without opening the page again.
    setParams: (query) => {
      const text = query.toString();
      history.replaceState(null, "", `${location.pathname}#${location.hash.slice(1).split("?")[0] || "/"}${text ? `?${text}` : ""}`);
    },
    title: (text) => { document.title = text === "Overview" ? "bide" : `${text} · bide`; },
    onEnd: (end) => page.end.push(end),
    onKey: (key, action) => { page.keys[key] = action; },
    onChange: (change) => { page.change = change; },
    // Runs a reading function now, every `seconds`, and with `soon()`; never twice at once, and not while the tab is hidden.
    refresh: (read, seconds) => repeat(page, read, seconds),
  };
  show(context);
  return undefined;
}

function repeat(page, read, seconds) {
  let running = false;
  let again = false;
  let timer;
  let last = 0;
  const run = async () => {
    if (page !== current) return;
    clearTimeout(timer);
    if (running) { again = true; return; }
    running = true;
    last = Date.now();
    try {
      await read();
      root.classList.remove("failing");
    } catch (error) {
      if (page !== current) return;
      root.classList.toggle("failing", !(error instanceof ProblemError));
      if (error instanceof ProblemError) page.failed?.(error);
      else console.error(error);
    } finally {
      running = false;
      if (page === current) timer = setTimeout(run, again ? 1000 : seconds * 1000);
      again = false;
    }
  };
  const visible = () => document.hidden || run();
  document.addEventListener("visibilitychange", visible);
  page.end.push(() => { clearTimeout(timer); document.removeEventListener("visibilitychange", visible); });
  run();
  return {
    now: run,
    // At most once per second, however many events arrive.
    soon: () => {
      if (running) { again = true; return; }
      clearTimeout(timer);
      timer = setTimeout(run, Math.max(0, 1000 - (Date.now() - last)));
    },
  };
}

// --- keyboard

const KEYS = [
  ["Search", "/"], ["Next, previous row or job", "j", "k"], ["Open", "Enter"], isAdmin ? ["Overview, jobs, queues", "g o", "g j", "g q"] : ["Overview, jobs", "g o", "g j"],
  ...(allows("control") ? [["Select a row, a range", "x", "Shift+x"], ["Clear the selection", "Esc"], ["Retry, cancel the open job", "r", "c"]] : []),
  ...(allows("submit") ? [["Submit a job", "n"]] : []), ["All keys", "?"],
];

function showKeys() {
  const dialog = h("dialog", { class: "dialog keys", "aria-labelledby": "keys-title" }, h("h2", { id: "keys-title" }, "Keyboard"),
    h("dl", null, KEYS.map(([what, ...keys]) => [h("dt", null, what), h("dd", null, keys.map((key) => [h("kbd", null, key), " "]))])),
    h("div", { class: "buttons" }, button("Close", { onclick: () => dialog.close() })));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

let prefix = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
  const key = event.key;
  const jump = Date.now() - prefix < 1500 && { o: "#/", j: "#/jobs", ...(isAdmin && { q: "#/queues", w: "#/workers" }) }[key];
  prefix = 0;
  let action;
  if (jump) action = () => { location.hash = jump; };
  else if (key === "g") action = () => { prefix = Date.now(); };
  else if (key === "?") action = showKeys;
  else if (key === "n" && allows("submit")) action = () => { location.hash = "#/submit"; };
  else if (current.keys[key]) action = () => current.keys[key](event);
  else if (key === "/") action = () => { location.hash = "#/jobs?focus=1"; };
  if (!action) return;
  event.preventDefault();
  action();
});

addEventListener("hashchange", open);
addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof ProblemError) { event.preventDefault(); toastError(event.reason); }
});
document.addEventListener("visibilitychange", () => root.classList.toggle("hidden-tab", document.hidden));
buildNav();
startTooltips();
setInterval(() => document.hidden || refreshTimes(), 5000);
setInterval(refreshNav, 5000);
refreshNav();
open();
