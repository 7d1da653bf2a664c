// Uploads: those under way with their progress, and those that are stored.

import { ago, at, bar, button, confirm, h, icon, keyed, name, panel, setText, toast, toastError } from "./dom.js";
import * as f from "./format.js";

const WAYS = { direct: "one request", tus: "resumable", chunks: "in chunks", presigned: "directly to storage" };
const LIMIT = 50;

export function show(page) {
  page.title("Uploads");
  page.view.append(h("header", { class: "head" }, h("h1", null, "Uploads")));
  const readers = [
    list(page, "UPLOADING", "Under way", "No upload is under way. A file that a client or the form sends appears here."),
    list(page, "DONE", "Stored", "No upload is stored. An upload that no job uses expires."),
  ];
  const now = () => readers.forEach((reader) => reader.now());
  page.onEnd(page.live.listen(() => readers.forEach((reader) => reader.soon())));
  return now;
}

function list(page, status, title, none) {
  const under = status === "UPLOADING";
  const box = panel(title);
  const body = h("tbody");
  const cols = under ? ["Progress"] : ["Size", "Type"];
  const table = h("table", { class: "uploads" }, h("caption", { class: "sr" }, title), h("thead", null, h("tr", null, h("th", { scope: "col", class: "col-name" }, "File"), cols.map((text) => h("th", { scope: "col", class: text === "Size" ? "number" : text === "Progress" ? "doing-cell" : "type" }, text)),
    h("th", { scope: "col", class: "way" }, "Sent"), h("th", { scope: "col" }, "Job"), h("th", { scope: "col", class: "number" }, "Begun"), h("th", { scope: "col", class: "number expires" }, "Expires"), page.allows("submit") && h("th", { scope: "col" }, h("span", { class: "sr" }, "Actions")))), body);
  const quiet = h("p", { class: "quiet", hidden: true }, none);
  const more = button("Older", { kind: "small", onclick: () => { pages.push(next); reader.now(); } });
  const back = button("Newer", { kind: "small", onclick: () => { pages.pop(); reader.now(); } });
  const foot = h("footer", { hidden: true }, h("span"), h("span", { class: "buttons tight" }, back, more));
  box.body.append(h("div", { class: "scroller" }, table), quiet);
  box.append(foot);
  page.view.append(box);
  const pages = []; // the cursors of this page and those before it
  let next = null;

  async function remove(upload) {
    if (!(await confirm(`Delete ${upload.name}?`, under ? "The request that sends it is ended. A job that waits for the file fails." : "The file is removed. The service refuses this while a job uses it.", { yes: "Delete", no: "Keep it", danger: true }))) return;
    try {
      await page.remove(`/uploads/${encodeURIComponent(upload.uploadId)}`);
      toast("The upload is deleted");
      reader.now();
    } catch (error) {
      toastError(error);
    }
  }

  function create(upload) {
    const parts = { what: h("span", { class: "what" }), percent: h("span", { class: "percent" }), bar: bar(`Upload of ${upload.name}`) };
    const job = upload.jobId ? h("a", { href: `#/jobs/${upload.jobId}`, class: "mono" }, f.shortId(upload.jobId)) : h("span", { class: "faint" }, f.NONE);
    return Object.assign(h("tr", null, h("th", { scope: "row", class: "col-name" }, icon("file"), name(upload.name)),
      under ? h("td", { class: "doing-cell" }, h("span", { class: "with-bar" }, parts.what, parts.bar, parts.percent)) : [h("td", { class: "number" }, f.size(upload.size)), h("td", { class: "type faint" }, name(upload.contentType))],
      h("td", { class: "way muted" }, WAYS[upload.way] ?? upload.way), h("td", null, job), h("td", { class: "number faint" }, ago(upload.createdAt)),
      h("td", { class: "number faint expires" }, upload.expiresAt ? at(upload.expiresAt, `in ${f.age(Math.max(0, (new Date(upload.expiresAt) - Date.now()) / 1000))}`) : f.NONE),
      page.allows("submit") && h("td", { class: "action" }, button("Delete", { icon: "trash", kind: "small danger", "aria-label": `Delete ${upload.name}`, onclick: () => remove(upload) }))), { parts });
  }
  function update({ parts }, upload) {
    if (!under) return;
    // What goes directly to storage, or in chunks, is not counted before it is complete.
    const known = upload.size && (upload.received > 0 || upload.way === "tus" || upload.way === "direct");
    const percent = known ? (100 * upload.received) / upload.size : null;
    setText(parts.what, known ? `${f.size(upload.received)} of ${f.size(upload.size)}` : upload.size == null ? "size not known yet" : f.size(upload.size));
    setText(parts.percent, f.percent(percent));
    parts.bar.show("UPLOADING", percent);
  }

  const reader = page.refresh(async () => {
    const cursor = pages.at(-1);
    const found = await page.get(`/uploads?status=${status}&limit=${LIMIT}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
    next = found.next;
    keyed(body, found.uploads, (upload) => upload.uploadId, create, update);
    table.hidden = !found.uploads.length;
    quiet.hidden = found.uploads.length > 0;
    more.disabled = !next;
    back.disabled = !pages.length;
    foot.hidden = !next && !pages.length;
    setText(box.noteElement, found.uploads.length && !pages.length ? f.count(found.uploads.length, next) : "");
  }, 5);
  return reader;
}
