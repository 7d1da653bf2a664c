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
  -- due and waiting for a worker; the claim looks at nothing else
  ready boolean NOT NULL,
  -- each label as the JSON of [name, value]
  tags text[]
) WITH (
  -- A job is written a few times within a short life: room for that beside it, and vacuum by what has changed, not by
  -- how much there is. An index entry of a job that was claimed slows the next claim until it is vacuumed.
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.005, autovacuum_vacuum_threshold = 10000,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);
-- Each of these holds only jobs that are in that state, so that ended ones cost nothing, however many there are.
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready;
CREATE INDEX jobs_due ON jobs (due) WHERE NOT ready AND due IS NOT NULL;
CREATE INDEX jobs_lease ON jobs (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX jobs_status ON jobs (status, id) WHERE status <> 'DONE';
CREATE INDEX jobs_kind ON jobs (kind, id);
CREATE INDEX jobs_tags ON jobs USING gin (tags) WHERE tags IS NOT NULL;

-- Apart from the job, for a status never needs it and a change would copy it.
CREATE TABLE inputs (
  job_id text COLLATE "C" PRIMARY KEY,
  tenant text NOT NULL,
  input text NOT NULL,
  files text
);

CREATE TABLE steps (
  job_id text COLLATE "C" NOT NULL,
  name text NOT NULL, -- as JSON, for a handler may choose any name
  tenant text NOT NULL,
  result text NOT NULL,
  at double precision NOT NULL,
  PRIMARY KEY (job_id, name)
);

-- Taken only by who holds the lock of the event log, until the end of the transaction: so numbers are in commit order.
CREATE SEQUENCE event_numbers;
CREATE TABLE events (
  id bigint PRIMARY KEY,
  tenant text NOT NULL,
  job_id text COLLATE "C" NOT NULL,
  type text NOT NULL,
  at double precision NOT NULL,
  job text NOT NULL,
  origin text NOT NULL -- the process that wrote it, which has heard of it already
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

CREATE TABLE tombstones (
  id text COLLATE "C" PRIMARY KEY,
  tenant text NOT NULL,
  at double precision NOT NULL
);
CREATE INDEX tombstones_at ON tombstones (at);

-- Who runs jobs, by word of each every few seconds: nothing that a crash of the server would have to keep.
CREATE UNLOGGED TABLE workers (
  name text PRIMARY KEY,
  tenant text NOT NULL,
  state text NOT NULL, -- as JSON
  seen_at double precision NOT NULL
);

-- Ends a transaction whose writes did not meet what it had remembered; the client tries again with what is true.
CREATE FUNCTION expect(met bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF met <> wanted THEN
    RAISE EXCEPTION 'overtaken: % of %', met, wanted USING ERRCODE = 'BD001';
  END IF;
END
$$;
