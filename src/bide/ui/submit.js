// Submit: a form from the schema of a kind. Files are sent resumable, and can be paused.

import { bar, button, cut, empty, h, icon, json, name, panel, select, setText, toastError } from "./dom.js";
import * as f from "./format.js";

let ids = 0;

export function show(page) {
  const { view, get, client, params, allows, readOnly } = page;
  page.title("Submit a job");
  view.append(h("header", { class: "head" }, h("h1", null, "Submit a job")));
  if (!allows("submit")) {
    view.append(empty(readOnly ? "This dashboard is read-only" : "The key lacks the scope submit", "Submit jobs with the command bide submit, or by HTTP."));
    return;
  }
  const box = panel("Job");
  view.append(box);
  // The browser would leave the page for a file that is dropped beside its field.
  for (const type of ["dragover", "drop"]) view.addEventListener(type, (event) => event.preventDefault());
  start(page, box, { get, client, params, view }).catch(toastError);
}

async function start(page, box, { get, client, params }) {
  const { kinds } = await get("/kinds");
  const from = params.get("from") && (await get(`/jobs/${encodeURIComponent(params.get("from"))}?include=input`).catch(() => null));
  if (!kinds.length) {
    box.replaceWith(empty("The app has no kinds", "Register a handler with @app.job, and start the service again."));
    return;
  }
  const wanted = from?.kind ?? params.get("kind");
  let kind = kinds.find((one) => one.kind === wanted) ?? kinds[0];
  const chosen = select("Kind", kinds.map((one) => [one.kind, one.kind]), kind.kind, (value) => {
    kind = kinds.find((one) => one.kind === value);
    page.setParams(new URLSearchParams({ kind: value }));
    draw(null);
  });
  chosen.id = "kind";
  const place = h("div");
  box.body.append(h("div", { class: "form" }, h("div", { class: "field" }, h("label", { for: "kind" }, "Kind"), chosen), place));
  const draw = (values) => place.replaceChildren(...form(page, client, kind, values));
  draw(from ? from.input : null);
}

// --- fields by the type of their schema

const resolve = (schema, root) => {
  let found = schema ?? {};
  for (let turn = 0; found.$ref && turn < 10; turn += 1) found = found.$ref.split("/").slice(1).reduce((at, part) => at?.[part], root) ?? {};
  return found;
};

function shape(schema, root) {
  const one = resolve(schema, root);
  const options = (one.anyOf ?? one.oneOf ?? []).map((option) => resolve(option, root));
  const rest = options.filter((option) => option.type !== "null");
  const nullable = options.length > rest.length;
  if (isFile(one) || rest.some(isFile)) return { type: "file", schema: one, nullable };
  if (options.length && rest.length === 1) return { ...shape(rest[0], root), nullable };
  if (one.enum || one.const !== undefined) return { type: "enum", values: one.enum ?? [one.const], schema: one, nullable };
  if (["string", "integer", "number", "boolean"].includes(one.type)) return { type: one.type, schema: one, nullable };
  return { type: "json", schema: one, nullable };
}

// A File is {"upload": ID} or {"job": ID, "name": NAME}.
const isFile = (schema) => schema?.format === "file" || schema?.title === "File" || Boolean(schema?.properties?.upload) || Boolean(schema?.["x-bide-file"]);

function field(key, schema, root, required, value, hint) {
  const { type, values, schema: own, nullable } = shape(schema, root);
  const id = `field-${(ids += 1)}`;
  const standard = schema?.default !== undefined ? schema.default : own.default;
  const begin = value !== undefined ? value : standard;
  const wrong = h("span", { class: "wrong", id: `${id}-wrong`, role: "alert" });
  const described = { id, "aria-describedby": `${id}-wrong` };
  const text = schema?.description ?? own.description ?? hint;
  const words = [required ? "" : "optional", standard !== undefined && standard !== null ? `default ${cut(JSON.stringify(standard), 60)}` : "", text].filter(Boolean).join(" · ");
  let control;
  let read;
  if (type === "file") {
    let file = null;
    const shown = h("span", { class: "faint" }, "or drop it here");
    const input = h("input", { type: "file", ...described, class: "sr" });
    const drop = h("div", { class: "drop" }, icon("upload"), button("Choose a file", { onclick: () => input.click() }), shown, input);
    const take = (next) => { file = next ?? null; setText(shown, file ? `${file.name} · ${f.size(file.size)}` : "or drop it here"); };
    input.addEventListener("change", () => take(input.files[0]));
    drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => { event.preventDefault(); drop.classList.remove("over"); take(event.dataTransfer.files[0]); });
    control = drop;
    read = () => {
      if (file) return { file };
      // Run again: the file of the earlier job.
      if (begin && typeof begin === "object") return { value: begin };
      if (required) throw new Error("Choose a file.");
      return {};
    };
    if (begin && typeof begin === "object") setText(shown, `the same file as before (${cut(begin.name ?? begin.upload ?? "", 80)}), or drop another one`);
  } else if (type === "boolean" && !nullable) {
    control = h("input", { type: "checkbox", ...described, checked: begin === true });
    read = () => ({ value: control.checked });
  } else if (type === "enum") {
    const options = values.map((one, index) => [String(index), String(one)]);
    const at = values.findIndex((one) => one === begin);
    control = select(key, required && at >= 0 ? options : [["", required ? "choose" : "–"], ...options], at < 0 ? "" : String(at), () => {});
    Object.assign(control, { id });
    control.setAttribute("aria-describedby", `${id}-wrong`);
    read = () => {
      if (control.value !== "") return { value: values[Number(control.value)] };
      if (required) throw new Error("Choose a value.");
      return {};
    };
  } else if (type === "string") {
    const long = (own.maxLength ?? 0) > 300 || String(begin ?? "").includes("\n");
    const secret = begin === "[secret]";
    control = h(long ? "textarea" : "input", { ...described, ...(long ? { rows: 4 } : { type: "text" }), value: secret ? "" : begin ?? "", placeholder: secret ? "hidden: enter it again" : null });
    read = () => {
      if (control.value !== "" || (required && !own.minLength) || begin === "") return { value: control.value };
      if (required) throw new Error("Enter a text.");
      return {};
    };
  } else if (type === "integer" || type === "number") {
    control = h("input", { ...described, type: "number", step: type === "integer" ? 1 : "any", min: own.minimum, max: own.maximum, value: begin ?? "" });
    read = () => {
      if (control.validity.badInput) throw new Error("Enter a number.");
      if (control.value !== "") return { value: Number(control.value) };
      if (required) throw new Error("Enter a number.");
      return {};
    };
  } else {
    control = h("textarea", { ...described, rows: 5, spellcheck: "false", value: begin === undefined ? "" : JSON.stringify(begin, null, 2), placeholder: "JSON" });
    read = () => {
      if (control.value.trim()) {
        try {
          return { value: JSON.parse(control.value) };
        } catch (error) {
          throw new Error(`This is not JSON: ${error.message}`);
        }
      }
      if (required) throw new Error("Enter JSON.");
      return {};
    };
  }
  const label = type === "file" ? h("span", { class: "legend-text" }, name(key)) : h("label", { for: id }, name(key));
  const element = h("div", { class: "field" }, type === "boolean" && !nullable ? h("span", { class: "check" }, control, label) : [label, control], words && h("span", { class: "hint" }, words), wrong);
  if (type === "file") element.querySelector("input").setAttribute("aria-label", cut(key, 100));
  const mark = (message) => { setText(wrong, message ?? ""); (element.querySelector(`#${id}`) ?? control).setAttribute("aria-invalid", Boolean(message)); };
  return { key, element, mark, read: () => { mark(); try { return read(); } catch (error) { mark(error.message); throw error; } } };
}

function form(page, client, kind, values) {
  const schema = kind.inputSchema;
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {}).map(([key, one]) => field(key, one, schema, required.has(key), values?.[key]));
  const options = [
    field("queue", { type: "string", description: `by default ${kind.queue}` }, {}, false),
    field("priority", { type: "integer", minimum: -1000, maximum: 1000, description: "−1000 to 1000; higher starts first" }, {}, false),
    field("labels", { type: "object", description: 'for example {"team": "ops"}' }, {}, false),
    ...(kind.requiresKey ? [field("idempotencyKey", { type: "string", description: "this kind needs a key" }, {}, true)] : []),
  ];
  const problem = h("p", { class: "invalid-note", role: "alert" });
  const sending = h("div", { class: "sending", hidden: true });
  const send = button("Submit job", { kind: "primary", icon: "plus", type: "submit" });
  const element = h("form", { class: "form", novalidate: true }, kind.description && h("p", { class: "muted" }, cut(kind.description, 600)), fields.map((one) => one.element),
    !fields.length && h("p", { class: "faint" }, "This kind has no input."),
    h("details", null, h("summary", null, "Queue, priority, labels"), h("div", { class: "form" }, options.map((one) => one.element))), problem, sending, h("div", { class: "buttons" }, send),
    h("details", null, h("summary", null, "Input schema"), json(schema)));
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    setText(problem, "");
    const input = {};
    const files = {};
    const more = {};
    let broken = null;
    for (const one of [...fields, ...options]) {
      try {
        const { value, file } = one.read();
        if (file) files[one.key] = file;
        else if (value !== undefined && value !== "" && options.includes(one)) more[one.key] = value;
        else if (value !== undefined && !options.includes(one)) input[one.key] = value;
      } catch {
        broken ??= one;
      }
    }
    if (broken) {
      broken.element.querySelector("input, select, textarea, button")?.focus();
      return;
    }
    send.disabled = true;
    try {
      const names = Object.keys(files);
      for (const key of names.slice(0, -1)) input[key] = { upload: (await upload(files[key], {}, sending)).url.split("/").at(-1) };
      const last = names.at(-1);
      const job = last ? (await upload(files[last], { kind: kind.kind, input, parameter: last, ...more }, sending)).job : await client.submit(kind.kind, input, more);
      page.go(`#/jobs/${job.id}`);
    } catch (error) {
      showProblem(error);
    } finally {
      send.disabled = false;
      sending.hidden = true;
    }
  });

  function showProblem(error) {
    const errors = error.problem?.errors ?? [];
    for (const { pointer, detail } of errors) [...fields, ...options].find((one) => pointer?.startsWith(`/input/${one.key}`) || pointer === `/${one.key}`)?.mark(detail);
    setText(problem, error.problem?.detail ?? error.message);
    [...fields, ...options].find((one) => one.element.querySelector("[aria-invalid=true]"))?.element.querySelector("[aria-invalid=true]").focus();
  }

  // Shows the progress of an upload, with pause and resume.
  async function upload(file, options, place) {
    const progress = bar(`Upload of ${cut(file.name, 100)}`);
    const text = h("span", { class: "what" });
    const draw = (sent) => { progress.show("UPLOADING", file.size ? (100 * sent) / file.size : 100); setText(text, `${file.name} · ${f.size(sent)} of ${f.size(file.size)}`); };
    const running = client.upload(file, { ...options, onProgress: draw });
    const pause = button("Pause", { icon: "pause", kind: "small", onclick: () => {
      if (running.paused) running.resume(); else running.pause();
      pause.replaceChildren(icon(running.paused ? "play" : "pause"), h("span", null, running.paused ? "Resume" : "Pause"));
    } });
    place.replaceChildren(text, progress, h("div", { class: "buttons" }, pause, button("Cancel", { icon: "close", kind: "small danger", onclick: () => running.cancel() })));
    place.hidden = false;
    draw(0);
    return running.done;
  }
  return [element];
}
