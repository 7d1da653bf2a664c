-- Names are looked up in the schema that the connection's search_path names. Instants are seconds since the epoch.
CREATE TABLE jobs (
  seq bigint GENERATED ALWAYS AS IDENTITY,
  id text COLLATE "C" PRIMARY KEY,
  kind text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  created_at double precision NOT NULL,
  updated_at double precision NOT NULL,
  tenant text NOT NULL,
  status text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  run integer NOT NULL,
  priority integer NOT NULL,
  labels text,
  run_at double precision,
  due double precision,
  deadline double precision,
  attempt integer NOT NULL,
  max_attempts integer NOT NULL,
  failures integer NOT NULL,
  losses integer NOT NULL,
  fence bigint NOT NULL,
  owner text,
  lease_until double precision,
  started_at double precision,
  next_attempt_at double precision,
  cancel_asked_at double precision,
  finished_at double precision,
  keep double precision,
  expires_at double precision,
  result text,
  result_file text,
  error text,
  progress text,
  steps text,
  files text,
  parent text COLLATE "C",
  children text,
  waiting_for text,
  trace_id text,
  -- due and waiting for a worker; claims read only these rows
  ready boolean NOT NULL,
  -- each label as the JSON of [name, value]
  tags text[]
) WITH (
  -- A job is updated a few times within a short time, so each page keeps free space. Vacuum depends on the number of
  -- changed rows, not on the size of the table: the index entry of a claimed job slows claims until it is vacuumed.
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.005, autovacuum_vacuum_threshold = 10000,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);
-- Partial indexes: each contains only jobs in one state, so the number of ended jobs does not matter.
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready;
CREATE INDEX jobs_due ON jobs (due) WHERE NOT ready AND due IS NOT NULL;
CREATE INDEX jobs_lease ON jobs (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX jobs_status ON jobs (status, id) WHERE status <> 'DONE';
CREATE INDEX jobs_kind ON jobs (kind, id);
CREATE INDEX jobs_tags ON jobs USING gin (tags) WHERE tags IS NOT NULL;

-- Separate from the job, because a status never needs the input and each update would copy it.
CREATE TABLE inputs (
  job_id text COLLATE "C" PRIMARY KEY,
  tenant text NOT NULL,
  input text NOT NULL,
  files text
);

CREATE TABLE steps (
  job_id text COLLATE "C" NOT NULL,
  name text NOT NULL, -- as JSON, because a handler may use any name
  tenant text NOT NULL,
  result text NOT NULL,
  at double precision NOT NULL,
  PRIMARY KEY (job_id, name)
);

-- Used only by the transaction that holds the lock of the event log until its end, so numbers are in commit order.
CREATE SEQUENCE event_numbers;
CREATE TABLE events (
  id bigint PRIMARY KEY,
  tenant text NOT NULL,
  job_id text COLLATE "C" NOT NULL,
  type text NOT NULL,
  at double precision NOT NULL,
  job text NOT NULL,
  origin text NOT NULL -- the process that wrote it and does not read it from the log
);
CREATE INDEX events_job ON events (job_id, id);

CREATE TABLE keys (
  tenant text NOT NULL,
  kind text NOT NULL,
  key text NOT NULL,
  fingerprint text NOT NULL,
  job_id text COLLATE "C" NOT NULL,
  at double precision NOT NULL,
  PRIMARY KEY (tenant, kind, key)
);
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);

CREATE TABLE queues (
  tenant text NOT NULL,
  name text NOT NULL,
  paused boolean NOT NULL,
  PRIMARY KEY (tenant, name)
);

CREATE TABLE durations (
  tenant text NOT NULL,
  kind text NOT NULL,
  sketch text NOT NULL,
  PRIMARY KEY (tenant, kind)
);

-- The latest progress of running jobs, if no Redis stores it. A crash of the server loses it; workers report it again.
CREATE UNLOGGED TABLE progress (
  job_id text COLLATE "C" PRIMARY KEY,
  fence bigint NOT NULL,
  number bigint NOT NULL,
  at double precision NOT NULL,
  progress text NOT NULL,
  kept double precision NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE tombstones (
  id text COLLATE "C" PRIMARY KEY,
  tenant text NOT NULL,
  at double precision NOT NULL
);
CREATE INDEX tombstones_at ON tombstones (at);

-- Heartbeats of workers. Unlogged, because each worker writes its row again every few seconds.
CREATE UNLOGGED TABLE workers (
  name text PRIMARY KEY,
  tenant text NOT NULL,
  state text NOT NULL, -- as JSON
  seen_at double precision NOT NULL
);

-- Fails a transaction whose cached rows were out of date; the client retries it with the current rows.
CREATE FUNCTION expect(met bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF met <> wanted THEN
    RAISE EXCEPTION 'overtaken: % of %', met, wanted USING ERRCODE = 'BD001';
  END IF;
END
$$;
