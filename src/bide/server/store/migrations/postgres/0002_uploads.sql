-- usable from 1
CREATE TABLE uploads (
  id text COLLATE "C" PRIMARY KEY,
  tenant text NOT NULL,
  status text COLLATE "C" NOT NULL,
  replica text COLLATE "C" NOT NULL,
  bytes bigint NOT NULL,
  updated_at double precision NOT NULL,
  expires_at double precision,
  record text NOT NULL,
  -- the job that it creates; a separate column, because it is written once
  submission text
) WITH (fillfactor = 80);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';

-- The jobs that use an upload. It does not expire while a job uses it.
CREATE TABLE upload_uses (
  upload_id text COLLATE "C" NOT NULL,
  job_id text COLLATE "C" NOT NULL,
  tenant text NOT NULL,
  PRIMARY KEY (upload_id, job_id)
);
CREATE INDEX upload_uses_job ON upload_uses (job_id);
