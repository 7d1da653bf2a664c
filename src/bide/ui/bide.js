/**
 * A client for bide services and other job APIs, for browsers and Node 20. One file, no dependencies.
 *
 * 1. All durations are seconds. An `AbortSignal` ends every call that takes one, with the reason of the signal.
 * 2. A failed request is retried until it succeeds or has failed for `retryFor` seconds. It is never a failed job.
 * 3. The credentials of a `Client` and the bytes of files are sent only to the origin of its service.
 *
 * Types and descriptions of all exports: bide.d.ts.
 */

const TERMINAL = new Set(["DONE", "PARTIAL_SUCCESS", "ERROR", "CANCELLED"]);
const SUCCESSFUL = new Set(["DONE", "PARTIAL_SUCCESS"]);
const RETRIED = new Set([408, 425, 429, 500, 502, 503, 504]); // statuses after which a later try may succeed
const REFUSED = new Set([429, 503]); // of these, the ones that say that the request had no effect
const HOLD = 25; // seconds that the service may hold a response; some proxies close a silent connection after 30
const HELD = 3; // responses that the service holds at a time; browsers open 6 connections per host
const GAP = 0.25; // the shortest time between two requests about one job
const REQUEST_TIMEOUT = 30;
const SILENCE = 45; // seconds without a byte after which an event stream is dead; the service sends a comment every 15
const LONGEST_PAUSE = 30;
const LONGEST_TIMER = 86400; // browsers end a timer of more than 24 days at once
const MIB = 1024 * 1024;
const TUS = { "Tus-Resumable": "1.0.0" };

/** Intervals and timeouts for jobs of third parties, by size. The Python client uses the same. */
export const SIZES = Object.freeze({
  small: Object.freeze({ firstInterval: 2, longestInterval: 5, timeout: 60 }),
  medium: Object.freeze({ firstInterval: 3, longestInterval: 10, timeout: 180 }),
  large: Object.freeze({ firstInterval: 5, longestInterval: 15, timeout: 600 }),
});

/** Returns the size of a document by its number of pages. */
export function pages(count) {
  if (!(count >= 0)) throw new RangeError(`A document cannot have ${count} pages`);
  return count <= 10 ? "small" : count <= 50 ? "medium" : "large";
}

// --- errors

export class BideError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** No usable response: the connection failed, or the body is not what it should be. */
export class Unreachable extends BideError {}

/** The `timeout` or `deadline` of a call has passed. The job may still be running. */
export class WaitTimeout extends BideError {}

/** The service answered with an error. `problem` is its RFC 9457 document, or one made from the status. */
export class ProblemError extends BideError {
  constructor(problem, headers, url = "") {
    super(`${problem.title}${problem.detail ? `: ${problem.detail}` : ""} (${problem.status} from ${url})`);
    this.problem = problem;
    this.status = problem.status;
    this.code = problem.code;
    this.retryable = problem.retryable ?? RETRIED.has(problem.status);
    this.headers = headers;
    this.retryAfter = readRetryAfter(headers);
  }

  static async from(response) {
    const text = await response.text().catch(() => "");
    let problem = { type: "about:blank", title: response.statusText || `HTTP ${response.status}`, detail: "" };
    try {
      const body = JSON.parse(text);
      if (body && typeof body === "object") problem = { ...problem, ...body };
    } catch {
      problem.detail = text.slice(0, 200).trim();
    }
    return new ProblemError({ ...problem, status: response.status }, response.headers, withoutQuery(response.url));
  }
}

/** The job ended without a result. `job` is its last status, `error` what the service reports. */
export class JobFailed extends BideError {
  constructor(job) {
    const reason = job.error ? `${job.error.code}: ${job.error.message}` : job.status;
    super(`Job ${job.jobId} (${job.kind}) ended as ${job.status}${job.error ? `, ${reason}` : ""}`);
    this.job = job;
    this.error = job.error;
  }
}

// --- time

const now = () => performance.now() / 1000;

/** A planned request is moved by at most 10 %, so that clients that started together do not stay together. */
const jittered = (seconds) => seconds * (0.9 + 0.2 * Math.random());

/** What a server asks for is never shortened. */
const delayed = (seconds) => seconds * (1 + 0.1 * Math.random());

/** Exponential backoff with jitter between half of the pause and the whole. */
function backoff(failures, first = 0.5, longest = LONGEST_PAUSE) {
  const ceiling = Math.min(longest, first * 2 ** Math.min(failures, 30));
  return ceiling * (0.5 + 0.5 * Math.random());
}

function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, Math.min(Math.max(seconds, 0), LONGEST_TIMER) * 1000);
    signal?.addEventListener("abort", end);
  });
}

/** A signal that aborts with the caller's signal, and with a WaitTimeout when the time has passed. */
class TimeLimit {
  #cancel;
  #outer;
  #timer;

  constructor({ signal, timeout, deadline }, what) {
    const controller = new AbortController();
    const ends = [timeout, deadline === undefined ? undefined : (new Date(deadline) - Date.now()) / 1000];
    const seconds = Math.min(...ends.map((end) => end ?? Infinity));
    if (Number.isNaN(seconds)) throw new TypeError(`timeout ${timeout} or deadline ${deadline} is not a time`);
    this.signal = controller.signal;
    this.end = now() + seconds;
    this.#cancel = () => controller.abort(signal.reason);
    this.#outer = signal;
    if (signal?.aborted) this.#cancel();
    signal?.addEventListener("abort", this.#cancel);
    if (seconds < LONGEST_TIMER) {
      const error = new WaitTimeout(`${what} did not end within ${Math.max(0, seconds).toFixed(1)} s`);
      this.#timer = setTimeout(() => controller.abort(error), Math.max(0, seconds) * 1000);
    }
  }

  get left() {
    return Math.max(0, this.end - now());
  }

  close() {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#cancel);
  }
}

/** Calls `attempt` until it succeeds. `safe`: the request may be repeated although it may have had an effect. */
async function persist(attempt, { retryFor, signal, safe = true, onRetry }) {
  let since;
  for (let failures = 0; ; failures += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (!mayRetry(error, safe)) throw error;
      since ??= now();
      const pause = Math.max(backoff(failures), delayed(error.retryAfter ?? 0));
      if (now() - since + pause > retryFor) throw error;
      onRetry?.(error, pause);
      await sleep(pause, signal);
    }
  }
}

function mayRetry(error, safe) {
  if (error instanceof ProblemError) return (safe ? RETRIED : REFUSED).has(error.status);
  return safe && error instanceof Unreachable;
}

/** One request, with a time limit until its headers arrive. The signal also ends the reading of the body. */
async function send(fetcher, url, { signal, ...init }, seconds = REQUEST_TIMEOUT) {
  // A wrong URL or header throws here, and is not taken for a failed connection.
  const request = { ...init, headers: new Headers(init.headers) };
  new URL(url, globalThis.location?.href);
  const late = new AbortController();
  const timer = seconds < LONGEST_TIMER ? setTimeout(() => late.abort(), seconds * 1000) : undefined;
  try {
    return await fetcher(url, { ...request, signal: signal ? AbortSignal.any([signal, late.signal]) : late.signal });
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    const cause = error.cause ?? error;
    const reason = late.signal.aborted ? `no response within ${seconds} s` : cause.message || cause.code || cause;
    throw new Unreachable(`${init.method ?? "GET"} ${withoutQuery(url)}: ${reason}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

async function readJson(response, signal) {
  let text = "";
  const late = new AbortController();
  try {
    text = await Promise.race([response.text(), sleep(REQUEST_TIMEOUT, late.signal)]);
    return JSON.parse(text);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    const shown = String(text).slice(0, 80);
    throw new Unreachable(`${withoutQuery(response.url)}: the response is not JSON: ${shown}`, { cause: error });
  } finally {
    late.abort();
  }
}

/** A URL for messages: a query may contain a credential. */
const withoutQuery = (url) => String(url).split("?")[0];

// --- a bide service

export class Client {
  #base;
  #token;
  #headers;
  #fetch;
  #retryFor;
  #held = 0;

  /** Without a URL, a page that loads the module from a service uses that service. */
  constructor(url = new URL("..", import.meta.url), { token, headers = {}, fetch, retryFor = 300 } = {}) {
    this.#base = new URL(url);
    if (!/^https?:$/.test(this.#base.protocol)) {
      throw new TypeError(`The URL of the service must start with http: or https:, not ${this.#base.protocol}`);
    }
    this.#base.pathname = this.#base.pathname.replace(/\/*$/, "/");
    this.#token = token;
    this.#headers = { ...takePassword(this.#base), ...headers };
    this.#fetch = fetch ?? ((...args) => globalThis.fetch(...args));
    this.#retryFor = retryFor;
  }

  get url() {
    return this.#base.href;
  }

  /** Sends a request to the service. `path` is relative to its URL, or a link of one of its responses. */
  async request(method, path, { signal, safe = method !== "POST", retryFor, onRetry, ...options } = {}) {
    const attempt = () => this.#once(method, path, { signal, ...options });
    return persist(attempt, { retryFor: retryFor ?? this.#retryFor, signal, safe, onRetry });
  }

  /** The same; returns the JSON of the response. */
  async json(method, path, options) {
    return (await this.read(method, path, options)).body;
  }

  /** The same, with the response. A body that breaks off is a failed request. A 304 has no body. */
  async read(method, path, { signal, safe = method !== "POST", retryFor, onRetry, ...options } = {}) {
    const attempt = async () => {
      const response = await this.#once(method, path, { signal, ...options });
      return { response, body: response.status === 304 ? undefined : await readJson(response, signal) };
    };
    return persist(attempt, { retryFor: retryFor ?? this.#retryFor, signal, safe, onRetry });
  }

  async #once(method, path, { json, body, headers, signal, timeout = REQUEST_TIMEOUT }) {
    const url = this.resolve(path);
    const token = typeof this.#token === "function" ? await this.#token() : this.#token;
    const init = {
      method,
      signal,
      cache: "no-store", // the cache of a browser would answer polls
      body: json === undefined ? body : JSON.stringify(json),
      headers: {
        ...this.#headers,
        ...(token ? { Authorization: `Bearer ${token}` } : {}),
        ...(json === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
    };
    const response = await send(this.#fetch, url, init, timeout);
    if (response.ok || response.status === 304) return response;
    throw await ProblemError.from(response);
  }

  /** Returns the URL of a path. Throws if it belongs to another origin, which must not get the credentials. */
  resolve(path) {
    const url = new URL(path, this.#base);
    if (url.origin !== this.#base.origin) {
      throw new BideError(`${withoutQuery(url)} does not belong to the service at ${this.#base.origin}`);
    }
    return url.href;
  }

  /** Submits a job. Repeated requests have the same idempotency key, so they create one job. */
  async submit(kind, input = {}, { files, idempotencyKey = newKey(), dedupe, wait, signal, ...others } = {}) {
    const document = { kind, input, ...others };
    const headers = { "Idempotency-Key": `"${idempotencyKey.replace(/["\\]/g, "\\$&")}"` };
    if (wait !== undefined) headers.Prefer = `wait=${Math.ceil(wait)}`;
    const content = files === undefined ? { json: document } : { body: formOf(document, files) };
    // A form takes as long as its bytes need.
    const timeout = files === undefined ? REQUEST_TIMEOUT + (wait ?? 0) : Infinity;
    const path = dedupe === undefined ? "jobs" : `jobs?dedupe=${encodeURIComponent(dedupe)}`;
    const job = await this.json("POST", path, { ...content, headers, signal, timeout, safe: true });
    return new Job(this, job.jobId, job);
  }

  /** A job by its id or its URL; sends nothing. */
  job(id) {
    return new Job(this, id instanceof Job ? id.id : String(id).replace(/^.*\//, ""));
  }

  async list(filter = {}, { signal } = {}) {
    return this.json("GET", `jobs${queryOf(filter)}`, { signal });
  }

  /** Waits for all jobs, with one request for up to 100 of them. Returns their last statuses in the same order. */
  async waitAll(jobs, { timeout, deadline, signal, onChange, retryFor } = {}) {
    const handles = [...jobs].map((job) => (job instanceof Job ? job : this.job(job)));
    const limit = new TimeLimit({ signal, timeout, deadline }, `${handles.length} jobs`);
    try {
      for (;;) {
        const waiting = handles.filter((job) => !job.ended);
        if (waiting.length === 0) return handles.map((job) => job.latest);
        let pause = LONGEST_PAUSE;
        for (let i = 0; i < waiting.length; i += 100) {
          const hint = await this.#refresh(waiting.slice(i, i + 100), { signal: limit.signal, retryFor }, onChange);
          pause = Math.min(pause, hint);
        }
        if (handles.some((job) => !job.ended)) await sleep(delayed(pause), limit.signal);
      }
    } finally {
      limit.close();
    }
  }

  /** Updates up to 100 jobs. Returns after how many seconds to ask again. */
  async #refresh(group, options, onChange) {
    const { response, body } = await this.read("GET", `jobs${queryOf({ id: group })}`, options);
    if (body.missing.length > 0) throw new BideError(`The service has no job ${body.missing.join(", ")}`);
    for (const status of body.jobs) group.find((job) => job.id === status.jobId)?.update(status, onChange);
    return readRetryAfter(response.headers) ?? 2;
  }

  /** Uploads a file in pieces, and resumes after failures. With `kind`, the complete file becomes a job. */
  upload(file, options = {}) {
    return new Upload(this, file, { retryFor: this.#retryFor, ...options });
  }

  /** The events of a job, or of all jobs that a filter selects. Reconnects by itself. */
  events(target, { retryFor = this.#retryFor, ...options } = {}) {
    const job = target instanceof Job ? target.id : typeof target === "string" ? this.job(target).id : undefined;
    const path = job === undefined ? `events${queryOf(target ?? {})}` : `jobs/${job}/events`;
    return readEvents(this, path, { retryFor, ...options });
  }

  /** Runs `task(held)`; `held`: the service may hold its response. Others poll, because connections are few. */
  async hold(task) {
    const held = this.#held < HELD;
    this.#held += held ? 1 : 0;
    try {
      return await task(held);
    } finally {
      this.#held -= held ? 1 : 0;
    }
  }

  get retryFor() {
    return this.#retryFor;
  }
}

export class Job {
  #client;

  constructor(client, id, latest = null) {
    this.#client = client;
    this.id = id;
    this.latest = latest;
  }

  get path() {
    return `jobs/${this.id}`;
  }

  get ended() {
    return this.latest !== null && TERMINAL.has(this.latest.status);
  }

  update(status, onChange) {
    const changed = this.latest === null || JSON.stringify(status) !== JSON.stringify(this.latest);
    this.latest = status;
    if (changed) onChange?.(status);
    return changed;
  }

  async status({ include, signal } = {}) {
    const query = include === undefined ? "" : `?include=${[include].flat().join(",")}`;
    this.latest = await this.#client.json("GET", this.path + query, { signal });
    return this.latest;
  }

  /** Waits until the job has ended, with long polls. Returns its last status, also of a job that failed. */
  async wait({ timeout, deadline, signal, onChange, retryFor = this.#client.retryFor } = {}) {
    const limit = new TimeLimit({ signal, timeout, deadline }, `Job ${this.id}`);
    let etag;
    let first = onChange !== undefined; // a caller that wants every change gets the current status without a wait
    try {
      while (!this.ended) {
        const began = now();
        const ask = (held) => this.#ask({ held: held && !first, etag, limit, retryFor, onChange });
        const answer = await this.#client.hold(ask);
        etag = answer.etag ?? etag;
        if (this.ended) break;
        // A response that the service held, or that came early with news, is followed at once.
        const waited = now() - began;
        const followed = first || (answer.held && (waited >= 1 || answer.changed));
        const pause = followed ? GAP - waited : delayed(answer.hint ?? 2);
        first = false;
        await sleep(pause, limit.signal);
      }
      return this.latest;
    } finally {
      limit.close();
    }
  }

  async #ask({ held, etag, limit, retryFor, onChange }) {
    const hold = held ? Math.min(HOLD, Math.ceil(limit.left)) : 0;
    const headers = hold > 0 ? { Prefer: `wait=${hold}` } : {};
    if (etag !== undefined && (onChange !== undefined || hold === 0)) headers["If-None-Match"] = etag;
    const options = { signal: limit.signal, headers, timeout: REQUEST_TIMEOUT + hold, retryFor };
    const { response, body } = await this.#client.read("GET", this.path, options);
    const changed = body !== undefined && this.update(body, onChange);
    const applied = response.headers.has("Preference-Applied"); // a proxy may remove `Prefer`
    const etagNow = response.headers.get("ETag") ?? undefined;
    return { held: applied, changed, hint: readRetryAfter(response.headers), etag: etagNow };
  }

  /** Waits, and returns the result. Throws JobFailed if the job has none. */
  async result(options = {}) {
    const job = await this.wait(options);
    if (!SUCCESSFUL.has(job.status)) throw new JobFailed(job);
    if (job.result !== null) return job.result;
    return this.#client.json("GET", `${this.path}/result`, { signal: options.signal }); // it may be a large one
  }

  /** The response with a file that the job has produced. */
  async file(name, { signal, headers } = {}) {
    return this.#client.request("GET", `${this.path}/files/${encodeURIComponent(name)}`, { signal, headers });
  }

  events(options) {
    return this.#client.events(this, options);
  }

  /** Yields what the handler emits, from the first chunk or after one, until the job has ended. */
  async *stream({ after, ...options } = {}) {
    const path = `${this.path}/stream`;
    const given = { retryFor: this.#client.retryFor, ...options };
    let last = [0, -1]; // generation and index
    for (let cursor = after, complete = false; !complete; ) {
      complete = true;
      for await (const { type, id, job } of readEvents(this.#client, path, { ...given, after: cursor })) {
        if (type === "reset") {
          [cursor, complete] = [undefined, false]; // the cursor is void: read from the first chunk, and skip known ones
          break;
        }
        if (type !== "output") continue;
        const { output: data, generation, index } = job;
        if (generation < last[0] || (generation === last[0] && index <= last[1])) continue;
        last = [generation, index];
        yield { id, data, generation, index };
      }
    }
  }

  async cancel(options) {
    return this.#act("cancel", options);
  }

  async retry(options) {
    return this.#act("retry", options);
  }

  async #act(action, { signal } = {}) {
    this.latest = await this.#client.json("POST", `${this.path}/${action}`, { signal });
    return this.latest;
  }

  async delete({ signal } = {}) {
    await this.#client.request("DELETE", this.path, { signal });
  }
}

/** The credentials of http://user:password@host as a header: `fetch` rejects such a URL. */
function takePassword(url) {
  const [user, password] = [url.username, url.password].map(decodeURIComponent);
  url.username = url.password = "";
  if (!user && !password) return {};
  return { Authorization: `Basic ${base64(new TextEncoder().encode(`${user}:${password}`))}` };
}

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function queryOf(filter) {
  const pairs = Object.entries(filter).flatMap(([name, value]) => {
    if (name === "label" && value && typeof value === "object" && !Array.isArray(value)) {
      return Object.entries(value).map(([label, wanted]) => [name, `${label}:${wanted}`]);
    }
    const values = [value].flat().filter((one) => one !== undefined);
    return values.map((one) => [name, one instanceof Job ? one.id : one]);
  });
  return pairs.length > 0 ? `?${new URLSearchParams(pairs)}` : "";
}

const blobOf = (data) => (data instanceof Blob ? data : new Blob([data]));

function formOf(document, files) {
  const form = new FormData();
  form.append("job", JSON.stringify(document));
  for (const [name, value] of Object.entries(files)) {
    for (const data of Array.isArray(value) ? value : [value]) form.append(name, blobOf(data), data.name ?? name);
  }
  return form;
}

// --- uploads, by tus 1.0

export class Upload {
  #client;
  #blob;
  #options;
  #metadata;
  #piece;
  #running; // aborts the running request when the upload is paused or cancelled
  #paused = false;
  #cancelled = false;
  #known = false; // `sent` is what the service has reported for `url`
  #shown = -1; // the last offset that `onProgress` got
  #wake = () => {};

  constructor(client, file, options) {
    const { kind, input, parameter, name = file.name, type = file.type, labels, priority, webhook } = options;
    this.#client = client;
    this.#blob = blobOf(file);
    this.#options = options;
    const { queue, runAt, deadline, dedupe } = options;
    this.#metadata = { kind, parameter, filename: name, filetype: type || undefined, queue, dedupe };
    if (runAt !== undefined) this.#metadata.runAt = new Date(runAt).toISOString();
    if (deadline !== undefined) this.#metadata.deadline = new Date(deadline).toISOString();
    if (kind !== undefined) this.#metadata.idempotencyKey = options.idempotencyKey ?? newKey();
    for (const [key, value] of Object.entries({ input, labels, priority, webhook })) {
      if (value !== undefined) this.#metadata[key] = JSON.stringify(value);
    }
    this.#piece = options.pieceSize ?? MIB;
    this.size = this.#blob.size;
    this.sent = 0; // bytes that the service has on disk
    this.url = options.url; // of an upload that an earlier page or process has begun
    this.job = null;
    this.done = this.#run();
  }

  get paused() {
    return this.#paused;
  }

  /** Stops sending; `done` stays pending. */
  pause() {
    this.#paused = true;
    this.#running?.abort();
  }

  resume() {
    this.#paused = this.#cancelled;
    this.#wake();
  }

  /** Stops, and removes the bytes from the service. `done` rejects. */
  async cancel() {
    this.#cancelled = true;
    this.done.catch(() => {}); // the caller need not handle its own cancel
    this.pause();
    this.#wake();
    if (this.url !== undefined) await this.#client.request("DELETE", this.url, { headers: TUS });
  }

  async #run() {
    const { signal, retryFor } = this.#options;
    for (;;) {
      await this.#whileRunning(signal);
      this.#running = new AbortController();
      const inner = signal ? AbortSignal.any([signal, this.#running.signal]) : this.#running.signal;
      try {
        await this.#send(inner, retryFor);
        return this;
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!this.#running.signal.aborted) throw error;
      }
    }
  }

  async #whileRunning(signal) {
    while (this.#paused) {
      if (this.#cancelled) throw new BideError("The upload was cancelled");
      await new Promise((resolve, reject) => {
        const stop = () => reject(signal.reason);
        if (signal?.aborted) return stop();
        signal?.addEventListener("abort", stop, { once: true });
        this.#wake = () => {
          signal?.removeEventListener("abort", stop);
          resolve();
        };
      });
    }
  }

  /** Sends until all bytes are on disk. `retryFor` counts from the last byte that arrived. */
  async #send(signal, retryFor) {
    let restarts = 0;
    for (let complete = false; !complete; ) {
      const before = this.sent;
      try {
        complete = await persist(() => this.#step(signal), { retryFor, signal });
      } catch (error) {
        const gone = error instanceof ProblemError && [404, 410].includes(error.status);
        if (!gone || this.url === undefined || restarts >= 3) throw error;
        restarts += 1; // the service has removed the upload: it starts again
        this.url = undefined;
        this.#show(0);
      }
      if (this.sent > before) restarts = 0;
    }
  }

  /** Sends one request. Returns whether the upload is complete. */
  async #step(signal) {
    if (this.url === undefined) return this.#begin(signal);
    if (!this.#known) return this.#place(await this.#ask("HEAD", this.url, { signal }));
    const end = Math.min(this.sent + this.#piece, this.size);
    const piece = this.#blob.slice(this.sent, end);
    const headers = { "Upload-Offset": String(this.sent), "Content-Type": "application/offset+octet-stream" };
    const checksum = await sha256(piece);
    if (checksum !== undefined) headers["Upload-Checksum"] = `sha256 ${checksum}`;
    const began = now();
    this.#known = false; // until the service has answered
    try {
      const complete = this.#place(await this.#ask("PATCH", this.url, { signal, headers, body: piece, timeout: 120 }));
      this.#adapt(now() - began);
      return complete;
    } catch (error) {
      this.#adapt(Infinity);
      // Another request writes, the offset is wrong, or bytes were damaged: ask where the upload is.
      const conflict = error instanceof ProblemError && [409, 423, 460].includes(error.status);
      throw conflict ? new Unreachable(error.message, { cause: error }) : error;
    }
  }

  async #begin(signal) {
    const pairs = Object.entries(this.#metadata).filter(([, value]) => value !== undefined);
    const metadata = pairs.map(([name, value]) => `${name} ${base64(new TextEncoder().encode(value))}`).join(",");
    const headers = { "Upload-Length": String(this.size), "Upload-Metadata": metadata };
    const response = await this.#ask("POST", "files", { signal, headers });
    const place = response.headers.get("Location");
    if (place === null) throw new BideError("The response has no Location header");
    this.url = this.#client.resolve(place);
    this.#options.onStart?.(this.url);
    return this.#place(response, 0);
  }

  async #ask(method, path, { headers, ...options }) {
    return this.#client.request(method, path, { ...options, headers: { ...TUS, ...headers }, retryFor: 0 });
  }

  #place(response, known) {
    const offset = known ?? Number(response.headers.get("Upload-Offset") ?? NaN);
    const length = Number(response.headers.get("Upload-Length") ?? this.size);
    if (length !== this.size || offset > this.size) {
      throw new BideError(`${this.url} is an upload of another file: it has ${length} bytes, not ${this.size}`);
    }
    if (!Number.isInteger(offset)) throw new Unreachable("The response has no Upload-Offset header");
    const job = response.headers.get("Job-Location");
    if (job !== null) this.job = this.#client.job(job);
    this.#known = true;
    this.#show(offset);
    return offset === this.size;
  }

  #show(offset) {
    this.sent = offset;
    if (offset === this.#shown) return;
    this.#shown = offset;
    this.#options.onProgress?.(offset, this.size);
  }

  /** Pieces take about two seconds: progress is shown, and a broken connection costs little. */
  #adapt(seconds) {
    if (this.#options.pieceSize !== undefined) return;
    const factor = Math.min(4, Math.max(0.25, 2 / seconds));
    this.#piece = Math.round(Math.min(32 * MIB, Math.max(MIB / 4, this.#piece * factor)));
  }
}

function base64(bytes) {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** In Base64; undefined in pages over plain HTTP, where browsers offer no hashes. */
async function sha256(blob) {
  if (globalThis.crypto?.subtle === undefined) return undefined;
  return base64(new Uint8Array(await crypto.subtle.digest("SHA-256", await blob.arrayBuffer())));
}

// --- events

/** Yields events until `end`. Each connection but the first continues after the last event. */
async function* readEvents(client, path, { after, signal, retryFor, silence = SILENCE, onInterrupt }) {
  let cursor = after;
  let retry = 1;
  let since; // when the stream was last alive, while it is not
  for (let failures = 0; ; failures += 1) {
    let problem;
    const began = now();
    try {
      const headers = { Accept: "text/event-stream", ...(cursor === undefined ? {} : { "Last-Event-ID": cursor }) };
      const response = await client.request("GET", path, { headers, signal, retryFor: 0 });
      if (response.status === 204) return;
      const type = response.headers.get("Content-Type") ?? "";
      if (!type.startsWith("text/event-stream")) throw new Unreachable(`${path}: the response is ${type}, not events`);
      for await (const frame of readFrames(response.body, signal, silence)) {
        failures = 0;
        since = undefined;
        retry = frame.retry ?? retry;
        if (frame.event === "end") return;
        if (frame.data === undefined || isRepeated(frame, cursor)) continue;
        cursor = frame.id ?? cursor;
        yield eventOf(frame);
      }
      problem = new Unreachable(`${path}: the connection was closed before the stream ended`);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      problem = error;
    }
    if (!mayRetry(problem, true)) throw problem;
    if (now() - began > silence) since = undefined;
    since ??= now();
    const usual = retry * (0.5 + Math.random()); // so that the listeners of a restarted service do not return together
    const pause = Math.max(failures === 0 ? usual : backoff(failures, retry), problem.retryAfter ?? 0);
    if (now() - since + pause > retryFor) throw problem;
    onInterrupt?.(problem, pause);
    await sleep(pause, signal);
  }
}

/** Whether the event was delivered already: numbers grow within an epoch. A snapshot may repeat the cursor. */
function isRepeated({ event, id }, cursor) {
  if (id === undefined || cursor === undefined || event === "snapshot" || event === "reset") return false;
  const [epoch, number] = splitCursor(id);
  const [lastEpoch, last] = splitCursor(cursor);
  return epoch === lastEpoch && number <= last;
}

function splitCursor(cursor) {
  const at = cursor.lastIndexOf("-");
  return [cursor.slice(0, at), Number(cursor.slice(at + 1))];
}

function eventOf({ event, id, data }) {
  let value;
  try {
    value = JSON.parse(data);
  } catch (error) {
    throw new Unreachable(`The data of an event is not JSON: ${data.slice(0, 80)}`, { cause: error });
  }
  if (event === "snapshot" || event === "reset") return { type: event, id, snapshot: value };
  return { ...value, type: event, ...(id === undefined ? {} : { id }) };
}

/** Parses a stream of server-sent events. Comments are yielded as empty frames: the connection is alive. */
async function* readFrames(body, signal, silence) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let frame = {};
  try {
    for (;;) {
      const { done, value } = await readAlive(reader, signal, silence);
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const lines = text.split(/\r\n|\n|\r(?!$)/); // a \r at the end may be half of a \r\n
      text = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (frame.data !== undefined || frame.event === "end") yield { event: "message", ...frame };
          else if (frame.retry !== undefined) yield { retry: frame.retry };
          frame = {};
        } else if (line.startsWith(":")) yield {};
        else addField(frame, line);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function addField(frame, line) {
  const [, name, value] = /^([^:]*)(?:: ?)?(.*)$/s.exec(line);
  if (name === "data") frame.data = frame.data === undefined ? value : `${frame.data}\n${value}`;
  else if (name === "event") frame.event = value;
  else if (name === "id" && !value.includes("\0")) frame.id = value;
  else if (name === "retry" && /^\d+$/.test(value)) frame.retry = Number(value) / 1000;
}

async function readAlive(reader, signal, seconds) {
  const late = new AbortController();
  const silence = sleep(seconds, late.signal).then(
    () => Promise.reject(new Unreachable(`no byte of the stream for ${seconds} s`)),
    () => new Promise(() => {}),
  );
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw error instanceof BideError ? error : new Unreachable(`the stream broke: ${error.message}`, { cause: error });
  } finally {
    late.abort();
  }
}

// --- jobs of third parties

/** Seconds that a response asks to wait, from Retry-After as a number or a date; undefined if it does not. */
export function readRetryAfter(headers) {
  for (const [name, unit] of [["retry-after-ms", 0.001], ["x-ms-retry-after-ms", 0.001], ["retry-after", 1]]) {
    const text = headers.get(name)?.trim();
    if (!text) continue;
    const number = readNumber(text);
    if (number !== undefined) return number * unit;
    const left = readInstant(text, headers);
    if (left !== undefined) return left;
  }
  return undefined;
}

const PARTS = ["limit", "remaining", "reset"];

/** The limits that a response states: quota and window of each, what remains, and seconds until it is reset. */
export function readLimits(headers) {
  const state = headers.get("ratelimit");
  const policies = readItems(headers.get("ratelimit-policy") ?? "")
    .filter(({ params }) => (params.qu ?? "requests") === "requests")
    .map(({ name, params }) => ({ name, quota: readNumber(params.q ?? name), window: readNumber(params.w) }));
  const found = [];
  for (const { name, params } of readItems(state ?? "")) {
    const remaining = readNumber(params.r);
    const policy = policies.find((one) => one.name === name) ?? (policies.length === 1 ? policies[0] : {});
    if (remaining !== undefined) found.push({ ...policy, remaining, reset: readNumber(params.t) });
  }
  if (found.length > 0) return found;
  const parts = Object.fromEntries([...(state ?? "").matchAll(/([a-z]+)\s*=\s*([\d.]+)/gi)].map(([, k, v]) => [k, v]));
  const families = [
    PARTS.map((part) => parts[part]),
    ...["ratelimit-", "x-ratelimit-", "x-rate-limit-"].map((start) => PARTS.map((part) => headers.get(start + part))),
    PARTS.map((part) => headers.get(`x-ratelimit-${part}-requests`)),
  ];
  for (const [limit, left, reset] of families) {
    const remaining = readNumber(left);
    if (remaining === undefined) continue;
    const items = readItems(limit ?? ""); // `60`, or `60, 60;w=60`
    const quota = readNumber(items[0]?.name);
    const same = items.filter(({ name }) => readNumber(name) === quota);
    const stated = same.map(({ params }) => readNumber(params.w ?? params.window));
    const window = stated.find((seconds) => seconds !== undefined) ?? policies[0]?.window;
    return [{ quota, window, remaining, reset: readReset(reset, headers) }];
  }
  return policies.filter(({ quota, window }) => quota && window);
}

/** Reads delta seconds, seconds or milliseconds since 1970, a date, or `6m0s`. */
function readReset(text, headers) {
  const number = readNumber(text);
  if (number === undefined) {
    const pieces = [...(text ?? "").matchAll(/([\d.]+)(ms|s|m|h|d)/g)];
    const units = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };
    if (pieces.length > 0 && !/\d{4}/.test(text)) return pieces.reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
    return readInstant(text ?? "", headers);
  }
  if (number > 1e11) return Math.max(0, (number - serverTime(headers)) / 1000);
  if (number > 1e9) return Math.max(0, number - serverTime(headers) / 1000);
  return number > 604800 ? number / 1000 : number; // more than a week: milliseconds
}

/** Seconds until a date, by the clock of the server: the one of this machine may be wrong. */
function readInstant(text, headers) {
  const at = text.length < 10 ? NaN : Date.parse(text); // Date.parse reads "-1", too
  return Number.isNaN(at) ? undefined : Math.max(0, (at - serverTime(headers)) / 1000);
}

function serverTime(headers) {
  const at = Date.parse(headers.get("date") ?? "");
  return Number.isNaN(at) ? Date.now() : at;
}

function readNumber(text) {
  const number = /^\s*\d+(\.\d*)?\s*$/.test(text ?? "") ? Number(text) : NaN;
  return number < 1e15 ? number : undefined;
}

/** The items of a structured field (RFC 9651) with their parameters. */
function readItems(text) {
  if (text.split('"').length % 2 === 0) return []; // a quote is not closed
  const items = text.slice(0, 1000).match(/(?:[^,"]|"(?:[^"\\]|\\.)*")+/g) ?? [];
  return items.map((item) => {
    const [name, ...rest] = item.match(/(?:[^;"]|"(?:[^"\\]|\\.)*")+/g) ?? [""];
    const params = rest.map((part) => part.split("=").map((half) => half.trim().replace(/^"|"$/g, "")));
    return { name: name.trim().replace(/^"|"$/g, ""), params: Object.fromEntries(params) };
  });
}

/**
 * The requests that one account may make. All requests of the account use `fetch` of one budget: it reads the limits in
 * the responses, spreads what remains over the time until the reset, and after a 429 delays all requests, not only one.
 */
export class Budget {
  #fetch;
  #concurrent;
  #rate = Infinity; // requests per second of the `limit` option
  #burst = 1;
  #level = 1; // requests that the option allows now
  #filled = now();
  #limits = []; // as the newest response states them
  #newest = 0; // the number of the request with that response
  #sent = 0;
  #open = 0;
  #last = -Infinity; // when the last request was sent
  #paused = -Infinity;
  #probing = true; // one request at a time, until a response shows what is allowed
  #gap = 0; // between requests, where only refusals show the limit
  #streak = 0;
  #turn = Promise.resolve();
  #wake = () => {};

  constructor({ limit, concurrent = 4, fetch } = {}) {
    this.#fetch = fetch ?? ((...args) => globalThis.fetch(...args));
    this.#concurrent = concurrent;
    if (limit !== undefined) this.#setLimit(limit);
    this.requests = 0;
    this.refused = 0;
  }

  #setLimit(limit) {
    const [, requests, seconds, unit, burst] = /^([\d.]+)\/([\d.]*)(s|m|h|d)(?::([\d.]+))?$/.exec(limit) ?? [];
    this.#rate = requests / ((seconds || 1) * { s: 1, m: 60, h: 3600, d: 86400 }[unit]);
    this.#level = this.#burst = Number(burst ?? 1);
    if (this.#rate > 0 && this.#burst >= 1) return;
    throw new RangeError(`limit ${limit} is not of the form 60/1m or 60/1m:10`);
  }

  /** As the global fetch, when the budget allows the request. After a 429 it waits, and sends the request again. */
  async fetch(resource, { timeout = REQUEST_TIMEOUT, ...init } = {}) {
    return this.run(({ signal }) => send(this.#fetch, resource, { ...init, signal }, timeout), init);
  }

  /** The same for a function that makes one request and returns the response. */
  async run(request, { signal } = {}) {
    for (;;) {
      const number = await this.#take(signal);
      let response;
      try {
        response = await request({ signal });
      } finally {
        this.#open -= 1;
        if (response !== undefined) this.#read(response, number);
        this.#wake();
      }
      if (!isRefusal(response)) return response;
      await response.body?.cancel();
    }
  }

  /** Waits for its turn. Returns the number of the request. */
  #take(signal) {
    const turn = this.#turn.then(async () => {
      for (let wait; (wait = this.#delay()) > 0; ) {
        signal?.throwIfAborted();
        await this.#change(wait, signal);
      }
      signal?.throwIfAborted();
      this.#level -= 1;
      this.#last = now();
      this.#open += 1;
      this.requests += 1;
      return (this.#sent += 1);
    });
    this.#turn = turn.catch(() => {});
    if (signal === undefined) return turn;
    return new Promise((resolve, reject) => {
      const stop = () => reject(signal.reason);
      signal.addEventListener("abort", stop, { once: true });
      turn.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    });
  }

  /** Until a response has arrived, or the time has passed. */
  #change(seconds, signal) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#wake(), Math.min(seconds, LONGEST_TIMER) * 1000);
      this.#wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", this.#wake);
        resolve();
      };
      signal?.addEventListener("abort", this.#wake);
    });
  }

  /** Seconds until the next request may be sent; Infinity: not before a response has arrived. */
  #delay() {
    if (this.#open >= (this.#probing ? 1 : this.#concurrent)) return Infinity;
    const at = now();
    if (this.#rate < Infinity) {
      this.#level = Math.min(this.#burst, this.#level + (at - this.#filled) * this.#rate);
      this.#filled = at;
    }
    const waits = [this.#paused - at, this.#last + this.#gap - at];
    if (this.#rate < Infinity) waits.push((1 - this.#level) / this.#rate);
    for (const limit of this.#limits) waits.push(this.#wait(limit, at));
    const longest = Math.max(...waits);
    return longest < 0.001 ? 0 : longest;
  }

  #wait({ quota, window, remaining, resetAt }, at) {
    if (remaining === undefined) return this.#last + window / quota - at; // only a policy: a steady pace fits it
    if (at >= resetAt) return this.#open > 0 ? Infinity : 0; // the next response shows what there is now
    const left = remaining - (this.#sent - this.#newest);
    if (left < 1) return resetAt - at;
    // What remains is spread evenly; not at all while more than half of the quota is left.
    const scarcity = quota === undefined ? 1 : Math.min(1, 2 * (1 - left / quota));
    const steady = quota && window ? window / quota : Infinity;
    return this.#last + Math.min((resetAt - at) / left, steady) * scarcity - at;
  }

  #read(response, number) {
    const at = now();
    const limits = readLimits(response.headers);
    if (isRefusal(response)) {
      const resets = limits.filter(({ remaining }) => remaining < 1).map(({ reset }) => reset ?? 0);
      const pause = readRetryAfter(response.headers) ?? (Math.max(0, ...resets) || backoff(this.#streak, 2, 60));
      this.refused += 1;
      this.#streak += 1;
      this.#probing = true;
      this.#paused = Math.max(this.#paused, at + delayed(pause));
      if (limits.length === 0) this.#gap = Math.min(60, Math.max(0.25, 2 * this.#gap));
    } else {
      this.#streak = 0;
      this.#probing = false;
      this.#gap = this.#gap < 0.05 ? 0 : 0.95 * this.#gap;
    }
    if (limits.length > 0 && number > this.#newest) {
      this.#newest = number;
      // A reset in whole seconds may be up to one second later.
      const later = (reset) => (Number.isInteger(reset) ? reset + 1 : reset);
      this.#limits = limits.map((one) => ({ ...one, resetAt: at + (later(one.reset) ?? one.window ?? 1) }));
    }
  }
}

/** 429, or 403 with Retry-After, which some APIs use in its place. */
function isRefusal({ status, headers }) {
  return status === 429 || (status === 403 && headers.has("retry-after"));
}

const budgets = new Map(); // by origin, for calls that name none

function budgetOf(url) {
  const { origin } = new URL(url, globalThis.location?.href);
  if (!budgets.has(origin)) budgets.set(origin, new Budget());
  return budgets.get(origin);
}

const words = (text) => new Set(text.split(" "));
const WAITING = words(
  "queued pending created accepted submitted starting started scheduled validating processing running runnable " +
    "inprogress inqueue finalizing canceling cancelling retry retrying uploading open uploadcomplete waiting",
);
const ENDED = words(
  "done complete completed succeeded success successful finished ended jobcomplete partialsuccess failed failure " +
    "error rejected crashed canceled cancelled aborted expired dismissed revoked incomplete timedout",
);

/** Whether the body of a response says that its job has ended; undefined if it says nothing that is known. */
export function hasEnded(body) {
  if (typeof body?.done === "boolean") return body.done;
  const word = String(body?.status ?? body?.state).toLowerCase().replace(/[ _-]/g, "");
  return ENDED.has(word) ? true : WAITING.has(word) ? false : undefined;
}

/**
 * Polls the job of any API until it has ended, and returns the body of the last response. `target` is the URL of its
 * status, or a function that requests it.
 */
export async function poll(target, options = {}) {
  const { size, ended = hasEnded, onPoll, headers, retryFor = 300, signal, deadline } = options;
  const defaults = size === undefined ? { firstInterval: 2, longestInterval: 10 } : SIZES[size];
  if (defaults === undefined) throw new RangeError(`size ${size} is not small, medium or large`);
  const { firstInterval, longestInterval, backoff: factor = 1.5, timeout } = { ...defaults, ...options };
  const isUrl = typeof target !== "function";
  const name = isUrl ? withoutQuery(target) : "The job";
  const budget = options.budget ?? (isUrl ? budgetOf(target) : new Budget());
  const limit = new TimeLimit({ signal, timeout, deadline }, name);
  const inner = { signal: limit.signal };
  const callTarget = () =>
    budget.run(target, inner).catch((error) => {
      // `fetch` throws a TypeError if there is no connection.
      throw error instanceof TypeError ? new Unreachable(error.message, { cause: error }) : error;
    });
  const request = async () => {
    const response = await (isUrl ? budget.fetch(target, { headers, ...inner }) : callTarget());
    if (!response.ok) throw await ProblemError.from(response);
    return [response, await readJson(response, limit.signal)];
  };
  let interval = firstInterval;
  let pause = jittered(interval);
  let warned = false;
  try {
    for (;;) {
      await sleep(pause, limit.signal);
      const [response, body] = await persist(request, { retryFor, ...inner });
      const over = ended(body, response);
      if (over) return body;
      if (over === undefined && !warned) {
        const text = `${name}: unknown status in ${JSON.stringify(body)?.slice(0, 200)}. Pass \`ended\` to read it.`;
        if (limit.end === Infinity) throw new BideError(text); // nothing would end the wait
        console.warn(text);
        warned = true;
      }
      onPoll?.(body, response);
      const hint = readRetryAfter(response.headers);
      interval = hint === undefined ? Math.min(longestInterval, interval * factor) : interval;
      pause = hint === undefined ? jittered(interval) : delayed(hint);
    }
  } finally {
    limit.close();
  }
}
