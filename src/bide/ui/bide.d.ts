/**
 * Types of bide.js: a client for bide services and other job APIs, for browsers and Node 20.3 or newer.
 * All durations are seconds; instants are `Date`s or RFC 3339 strings.
 */

export type Status =
  | "UPLOADING" | "PENDING" | "PROCESSING" | "RETRYING" | "DONE" | "PARTIAL_SUCCESS" | "ERROR" | "CANCELLED";

export interface Progress {
  percent: number | null;
  message: string | null;
  step: string | null;
  done: number | null;
  total: number | null;
  unit: string | null;
}

/** Why a job failed. */
export interface JobErrorInfo {
  code: string;
  message: string;
  retryable: boolean;
  failedStep: string | null;
  attempt: number;
  traceId: string | null;
}

export interface OutputFile {
  name: string;
  contentType: string;
  size: number;
  sha256: string;
  url: string;
}

/** The status resource, as `GET /jobs/{jobId}` returns it. */
export interface JobStatus<Result = any> {
  jobId: string;
  kind: string;
  status: Status;
  cancelRequested: boolean;
  overdue: boolean;
  progress: Progress | null;
  eta: { finishAt: string; low: string; high: string } | null;
  attempt: number;
  maxAttempts: number;
  priority: number;
  queue: string;
  labels: Record<string, string>;
  createdAt: string;
  runAt: string | null;
  startedAt: string | null;
  nextAttemptAt: string | null;
  finishedAt: string | null;
  updatedAt: string;
  expiresAt: string | null;
  deadline: string | null;
  steps: { name: string; status: Status; startedAt: string | null; finishedAt: string | null }[];
  children: { jobId: string; kind: string; status: Status | null }[];
  /** null while there is none, and for results over 64 KiB: `job.result()` returns those, too. */
  result: Result | null;
  files: OutputFile[];
  error: JobErrorInfo | null;
  traceId: string | null;
  links: Record<string, string>;
  /** In the answer to a submission: whether an earlier submission has created the job. */
  replayed?: boolean;
  input?: any;
  attempts?: any[];
  log?: any[];
}

/** A problem document (RFC 9457). A response without one is described by its status. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  instance?: string;
  code?: string;
  retryable?: boolean;
  traceId?: string;
  errors?: { pointer: string; detail: string }[];
  [name: string]: unknown;
}

/** The base of all errors of this module. An aborted call throws the reason of its signal instead. */
export class BideError extends Error {}

/** There was no usable response, and retries did not help. */
export class Unreachable extends BideError {}

/** `timeout` or `deadline` has passed. The job may still be running. */
export class WaitTimeout extends BideError {}

/** The service answered with an error. */
export class ProblemError extends BideError {
  readonly problem: Problem;
  readonly status: number;
  readonly code: string | undefined;
  readonly retryable: boolean;
  readonly headers: Headers;
  /** Seconds, from Retry-After. */
  readonly retryAfter: number | undefined;
}

/** The job has ended without a result. */
export class JobFailed extends BideError {
  readonly job: JobStatus;
  readonly error: JobErrorInfo | null;
}

export interface ClientOptions {
  /** Sent as `Authorization: Bearer`. A function is called before each request, so that it can renew the token. */
  token?: string | (() => string | Promise<string>);
  headers?: Record<string, string>;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
  /** For how many seconds a failing request is retried; by default 300. */
  retryFor?: number;
}

export interface RequestOptions {
  /** A body that is sent as JSON. */
  json?: unknown;
  body?: RequestInit["body"];
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Seconds until the headers of the response must have arrived; by default 30. */
  timeout?: number;
  /** Whether the request may be repeated although it may have had an effect; by default all but POST. */
  safe?: boolean;
  retryFor?: number;
  onRetry?: (error: BideError, pause: number) => void;
}

/** Bytes of a file: a `File` or `Blob`, or a `Buffer`, `Uint8Array`, `ArrayBuffer` or string. */
export type FileData = Blob | ArrayBuffer | ArrayBufferView | string;

export interface JobOptions {
  priority?: number;
  queue?: string;
  runAt?: string | Date;
  deadline?: string | Date;
  labels?: Record<string, string>;
  /** The same key, kind and input return the first job. By default a new key per call. */
  idempotencyKey?: string;
  /** The same files and input return the first job. */
  dedupe?: "content" | "content+name";
  /** An endpoint that receives the events of the job. */
  webhook?: { url: string; events?: string[]; secret?: string };
  signal?: AbortSignal;
}

export interface SubmitOptions extends JobOptions {
  /** One or several files per `File` parameter of the kind, sent as a form. */
  files?: Record<string, FileData | FileData[]>;
  /** Seconds that the service may hold its answer until the job has ended, up to 60. */
  wait?: number;
}

export interface WaitOptions {
  timeout?: number;
  deadline?: string | Date;
  signal?: AbortSignal;
  /** Gets the first status and each one that differs from the one before. */
  onChange?: (job: JobStatus) => void;
  retryFor?: number;
}

export interface JobFilter {
  status?: Status | Status[];
  kind?: string;
  queue?: string;
  /** `{ team: "ops" }`, or `"team:ops"`. */
  label?: Record<string, string> | string;
  limit?: number;
  cursor?: string;
  [name: string]: unknown;
}

/** A service. Without a URL, a page that loads the module from a service uses that service. */
export class Client {
  constructor(url?: string | URL, options?: ClientOptions);
  readonly url: string;
  readonly retryFor: number;
  /** Submits a job; returns when the service has it on disk. */
  submit<Result = any>(kind: string, input?: Record<string, unknown>, options?: SubmitOptions): Promise<Job<Result>>;
  /** A job by its id, its URL or its handle; sends nothing. */
  job<Result = any>(id: string | Job): Job<Result>;
  list(filter?: JobFilter, options?: { signal?: AbortSignal }):
    Promise<{ jobs: JobStatus[]; next: string | null; missing: string[] }>;
  /** Waits for many jobs with one request for up to 100 of them. Returns their statuses in the same order. */
  waitAll(jobs: Iterable<string | Job>, options?: WaitOptions): Promise<JobStatus[]>;
  /** Starts an upload by tus 1.0. */
  upload(file: FileData, options?: UploadOptions): Upload;
  /** Reads events of a job, or of all jobs that a filter selects, and reconnects by itself. */
  events(target?: string | Job | EventFilter, options?: EventOptions): AsyncGenerator<JobEvent, void, void>;
  /** Sends any request to the service. Throws `ProblemError` if the answer is an error. */
  request(method: string, path: string, options?: RequestOptions): Promise<Response>;
  /** The same; returns the JSON of the answer. */
  json(method: string, path: string, options?: RequestOptions): Promise<any>;
  /** Returns the URL of a path. Throws if it belongs to another origin. */
  resolve(path: string): string;
}

/** A job of a service. */
export class Job<Result = any> {
  readonly id: string;
  /** The newest status that this handle has seen. */
  readonly latest: JobStatus<Result> | null;
  readonly ended: boolean;
  status(options?: { include?: string | string[]; signal?: AbortSignal }): Promise<JobStatus<Result>>;
  /** Waits until the job has ended. Returns its last status, also of a job that failed. */
  wait(options?: WaitOptions): Promise<JobStatus<Result>>;
  /** Waits, and returns the result. Throws `JobFailed` if the job has none. */
  result(options?: WaitOptions): Promise<Result>;
  /** The response with a file that the job has produced. */
  file(name: string, options?: { signal?: AbortSignal; headers?: Record<string, string> }): Promise<Response>;
  events(options?: EventOptions): AsyncGenerator<JobEvent, void, void>;
  /** Reads what the handler emits with `ctx.emit`, from the first chunk or after one, until the job has ended. */
  stream<Data = any>(options?: EventOptions): AsyncGenerator<OutputChunk<Data>, void, void>;
  cancel(options?: { signal?: AbortSignal }): Promise<JobStatus<Result>>;
  /** Runs the job again after ERROR, CANCELLED or PARTIAL_SUCCESS; finished steps are kept. */
  retry(options?: { signal?: AbortSignal }): Promise<JobStatus<Result>>;
  delete(options?: { signal?: AbortSignal }): Promise<void>;
}

export interface UploadOptions extends JobOptions {
  /** With a kind, the complete file becomes a job. */
  kind?: string;
  input?: Record<string, unknown>;
  /** The parameter that takes the file, if the kind has several. */
  parameter?: string;
  name?: string;
  type?: string;
  /** The URL of an upload that an earlier page or process began: it continues where that one ended. */
  url?: string;
  /** Bytes per request; by default as many as take about two seconds. */
  pieceSize?: number;
  retryFor?: number;
  /** Gets the URL of the upload before the first byte is sent. Store it to continue later. */
  onStart?: (url: string) => void;
  /** Gets the bytes that the service has on disk. */
  onProgress?: (sent: number, size: number) => void;
}

/** A running upload. */
export class Upload {
  readonly done: Promise<Upload>;
  readonly url: string | undefined;
  readonly size: number;
  /** Bytes that the service has on disk. */
  readonly sent: number;
  readonly paused: boolean;
  /** The job that the file has become. */
  readonly job: Job | null;
  /** Stops sending until `resume`. */
  pause(): void;
  resume(): void;
  /** Stops, and removes the bytes from the service; `done` rejects. */
  cancel(): Promise<void>;
}

export interface EventFilter {
  kind?: string;
  queue?: string;
  label?: Record<string, string> | string;
  type?: string | string[];
  id?: string | Job | (string | Job)[];
}

export interface EventOptions {
  /** The `id` of the last event that is known: events after it are read. */
  after?: string;
  signal?: AbortSignal;
  /** For how many seconds a broken stream is reconnected; by default that of the client. */
  retryFor?: number;
  /** Seconds without a byte after which the connection counts as broken; by default 45. */
  silence?: number;
  /** Called when the stream is interrupted, with the seconds until the next try. */
  onInterrupt?: (error: BideError, pause: number) => void;
}

/** One event. `snapshot` and `reset` have `snapshot`; all others have `jobId`, `at` and `job`. */
export interface JobEvent {
  type: "snapshot" | "reset" | "status" | "step" | "log" | "output" | "deleted" | "queue" | "progress";
  /** The cursor of the event; progress has none. */
  id?: string;
  jobId?: string;
  at?: string;
  job?: any;
  snapshot?: any;
}

/** What a handler has emitted. Another attempt of the job begins a new generation with index 0. */
export interface OutputChunk<Data = any> {
  id: string;
  data: Data;
  generation: number;
  index: number;
}

export type Size = "small" | "medium" | "large";

/** First and longest interval and timeout, in seconds, by size. */
export const SIZES: Readonly<Record<Size, Readonly<{ firstInterval: number; longestInterval: number; timeout: number }>>>;

/** The size of a document: small up to 10 pages, medium up to 50, otherwise large. */
export function pages(count: number): Size;

export interface BudgetOptions {
  /** The limit of your contract: "60/1m", or with a burst "60/1m:10". Without it, the responses show the limit. */
  limit?: string;
  /** Requests that may be open at the same time; by default 4. */
  concurrent?: number;
  fetch?: typeof fetch;
}

/** The requests that one account of a third party may make. Use one for all requests of the account. */
export class Budget {
  constructor(options?: BudgetOptions);
  readonly requests: number;
  readonly refused: number;
  /** As the global `fetch`, as soon as the budget allows it. Sends the request again after a 429. */
  fetch(resource: string | URL, init?: RequestInit & { timeout?: number }): Promise<Response>;
  /** The same for a function that makes one request. */
  run(request: (options: { signal?: AbortSignal }) => Promise<Response>, options?: { signal?: AbortSignal }): Promise<Response>;
}

export interface PollOptions {
  /** Sets intervals and the timeout; each can be set by itself, too. */
  size?: Size;
  /** Seconds until the first request; by default 2. */
  firstInterval?: number;
  /** The factor by which the interval grows; by default 1.5. */
  backoff?: number;
  /** By default 10. */
  longestInterval?: number;
  timeout?: number;
  deadline?: string | Date;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  /** By default one budget per origin. */
  budget?: Budget;
  /** Whether the job has ended; undefined if the body does not tell. By default `hasEnded`. */
  ended?: (body: any, response: Response) => boolean | undefined;
  /** Gets each answer of a job that has not ended. */
  onPoll?: (body: any, response: Response) => void;
  retryFor?: number;
}

/** Polls the job of any API until it has ended. Returns the body of the last answer, also of a job that failed. */
export function poll<Body = any>(
  target: string | URL | ((options: { signal?: AbortSignal }) => Promise<Response>),
  options?: PollOptions,
): Promise<Body>;

/** Whether `status`, `state` or `done` of a body say that the job has ended; undefined for an unknown word. */
export function hasEnded(body: any): boolean | undefined;

/** Seconds, from Retry-After as a number or a date; undefined without it. */
export function readRetryAfter(headers: Headers): number | undefined;

export interface AdvertisedLimit {
  name?: string;
  quota?: number;
  window?: number;
  remaining?: number;
  /** Seconds until the quota is full again. */
  reset?: number;
}

/** The limits in RateLimit, RateLimit-Policy, RateLimit-* and X-RateLimit-* headers. */
export function readLimits(headers: Headers): AdvertisedLimit[];
