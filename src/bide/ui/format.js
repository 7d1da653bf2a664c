// Numbers, durations and times as text. An unknown value is "–", never an invented one.

export const NONE = "–";
const THIN = "\u202f";
const counts = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const pad = (value, width = 2) => String(value).padStart(width, "0");

export const count = (value, more = false) => (value == null ? NONE : counts.format(value) + (more ? "+" : ""));

export function axis(value) {
  if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}${THIN}M`;
  if (value >= 1e4) return `${+(value / 1e3).toFixed(1)}${THIN}k`;
  return value < 10 && value % 1 ? value.toFixed(1) : counts.format(value);
}

// At most two units; what follows a larger unit has two digits.
export function duration(seconds) {
  if (seconds == null || Number.isNaN(seconds)) return NONE;
  if (seconds < 0) seconds = 0;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}${THIN}ms`;
  if (seconds < 9.95) return `${+seconds.toFixed(1)}${THIN}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}${THIN}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}${THIN}m ${pad(whole % 60)}${THIN}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}${THIN}h ${pad(Math.floor(whole / 60) % 60)}${THIN}m`;
  return `${Math.floor(whole / 86400)}${THIN}d ${Math.floor(whole / 3600) % 24}${THIN}h`;
}

// Whole seconds, for ages: they change once per second at most.
export const age = (seconds) => (seconds == null ? NONE : duration(seconds < 1 ? 0 : Math.floor(seconds)).replace(`0${THIN}ms`, `0${THIN}s`));

// How long ago, in lists: without the seconds of a minute, which would change all the time.
export const past = (seconds) => (seconds >= 60 && seconds < 3600 ? `${Math.floor(seconds / 60)}${THIN}m` : age(seconds));

// Time left, rounded so that it does not move by single seconds.
export function left(seconds) {
  if (seconds <= 0) return "any moment";
  const unit = seconds > 600 ? 60 : seconds > 60 ? 5 : 1;
  return `${age(Math.max(1, Math.round(seconds / unit) * unit))} left`;
}

// An estimated duration, rounded to what it can promise.
export function rough(seconds) {
  if (seconds < 1) return `under 1${THIN}s`;
  const unit = seconds < 10 ? 1 : seconds < 60 ? 5 : seconds < 600 ? 10 : seconds < 7200 ? 60 : 600;
  return age(Math.max(1, Math.round(seconds / unit) * unit));
}

export function size(bytes) {
  if (bytes == null) return NONE;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (bytes >= 999.5 && at < units.length - 1) { bytes /= 1000; at += 1; }
  return `${at === 0 || bytes >= 99.5 ? Math.round(bytes) : bytes.toFixed(1)}${THIN}${units[at]}`;
}

// 100 % only when the job is done.
export function percent(value, done = false) {
  if (done) return `100${THIN}%`;
  return value == null ? NONE : `${Math.min(99, Math.floor(value))}${THIN}%`;
}

export const share = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)}${THIN}%` : NONE);

export const seconds = (from, to) => (from == null || to == null ? null : (new Date(to) - new Date(from)) / 1000);
export const since = (instant) => (instant == null ? null : Math.max(0, (Date.now() - new Date(instant)) / 1000));

export function clock(instant, milliseconds = false) {
  const at = new Date(instant);
  const text = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return milliseconds ? `${text}.${pad(at.getMilliseconds(), 3)}` : text;
}
export function minute(instant) {
  const at = new Date(instant);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}`;
}
export const day = (instant) => new Date(instant).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
export const local = (instant) => `${new Date(instant).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${clock(instant)}`;
export const utc = (instant) => new Date(instant).toISOString().slice(0, 19).replace("T", " ");

export function zone() {
  const now = new Date();
  const parts = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(now);
  const name = parts.find((part) => part.type === "timeZoneName")?.value ?? "";
  const minutes = -now.getTimezoneOffset();
  const hours = Math.abs(minutes) / 60;
  const offset = `UTC${minutes < 0 ? "−" : "+"}${Number.isInteger(hours) ? hours : hours.toFixed(1)}`;
  return minutes === 0 ? "UTC" : name.startsWith("GMT") || name.startsWith("UTC") ? offset : `${name} (${offset})`;
}

// Ids of one hour share their beginning, so both ends are shown.
export const shortId = (id) => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id);

export const WORDS = {
  UPLOADING: "Uploading", PENDING: "Pending", PROCESSING: "Processing", RETRYING: "Retrying", DONE: "Done",
  PARTIAL_SUCCESS: "Partial success", ERROR: "Error", CANCELLED: "Cancelled",
};
export const word = (status) => WORDS[status] ?? status;
export const TERMINAL = new Set(["DONE", "PARTIAL_SUCCESS", "ERROR", "CANCELLED"]);

export const jobName = (job) => job.labels?.name || job.kind;
