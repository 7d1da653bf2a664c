// The live connection: one WebSocket per tab, whose events are delivered in batches, at most ten per second.
// After an interruption it continues each subscription after its last event.

const MAIN = ["status", "progress", "deleted"];
const PAUSE = 100; // milliseconds between two batches
const OFFLINE = 20_000; // milliseconds without a connection

export class Live {
  // `queues`: whether the caller may see the events of queues.
  constructor(url, queues = true) {
    this.url = url.replace(/^http/, "ws") + "/ws";
    this.state = "connecting";
    this.lastAt = null; // of the last sign of life
    this.perSecond = 0;
    this._listeners = new Set();
    this._states = new Set();
    this._filters = new Map(); // by key: the filter, and the cursor after which it continues
    this._batch = [];
    this._seen = 0;
    this._tries = 0;
    this._add("main", { type: queues ? [...MAIN, "queue"] : MAIN });
    setInterval(() => {
      this.perSecond = Math.round(this._seen / 2);
      this._seen = 0;
      this._tell();
    }, 2000);
    addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => document.hidden || this.retryNow());
    this._connect();
  }

  // `listener` gets a list of events; an event of type `reset` says that events may be missing.
  listen(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  onState(listener) {
    this._states.add(listener);
    listener(this);
    return () => this._states.delete(listener);
  }

  // Subscribes to log lines, steps and output of one job, which the main subscription leaves out.
  follow(jobId) {
    const key = `job ${jobId}`;
    this._add(key, { id: [jobId], type: ["step", "log", "output"] });
    return () => {
      const entry = this._filters.get(key);
      if (entry && this._filters.delete(key)) this._send({ unsubscribe: { filter: entry.filter } });
    };
  }

  _add(key, filter) {
    if (this._filters.has(key)) return;
    this._filters.set(key, { filter, after: null });
    this._send({ subscribe: { filter } });
  }

  _send(message) {
    if (this._socket?.readyState === WebSocket.OPEN) this._socket.send(JSON.stringify(message));
  }

  _connect() {
    clearTimeout(this._timer);
    const socket = (this._socket = new WebSocket(this.url, "bide.v1"));
    socket.onopen = () => {
      for (const { filter, after } of this._filters.values()) this._send({ subscribe: { filter }, ...(after && { after }) });
      const again = this._tries > 0 || this.state !== "connecting";
      this._tries = 0;
      this._downSince = null;
      this._become("live");
      if (again) this._push({ type: "reset" });
    };
    socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      this.lastAt = Date.now();
      if (event.type === "snapshot" && event.jobId == null) return this._cursor(event);
      this._seen += 1;
      this._cursor(event);
      return this._push(event);
    };
    socket.onclose = () => {
      if (socket !== this._socket) return;
      this._downSince ??= Date.now();
      this._tries += 1;
      this._become(Date.now() - this._downSince > OFFLINE || navigator.onLine === false ? "offline" : "reconnecting");
      const pause = Math.min(10_000, 500 * 2 ** Math.min(this._tries, 5)) * (0.5 + Math.random() / 2);
      this._timer = setTimeout(() => this._connect(), pause);
    };
  }

  retryNow() {
    if (this._socket && this._socket.readyState > 1) this._connect();
  }

  _cursor(event) {
    if (!event.id) return;
    const own = event.jobId && this._filters.get(`job ${event.jobId}`);
    if (own && own.filter.type.includes(event.type)) own.after = event.id;
    else this._filters.get("main").after = event.id;
  }

  _push(event) {
    this._batch.push(event);
    this._flushing ??= setTimeout(() => {
      const batch = this._batch;
      this._batch = [];
      this._flushing = null;
      for (const listener of this._listeners) listener(batch);
    }, PAUSE);
  }

  _become(state) {
    if (this.state === state && state === "live") return;
    this.state = state;
    this._tell();
  }

  _tell() {
    for (const listener of this._states) listener(this);
  }
}
