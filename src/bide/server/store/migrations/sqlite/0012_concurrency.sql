-- Jobs with the same key share the limit of their kind on concurrent jobs; NULL: the job has no limit.
ALTER TABLE jobs ADD COLUMN concurrency_key TEXT;
-- The jobs of a key that workers hold.
CREATE INDEX jobs_concurrency ON jobs (concurrency_key) WHERE concurrency_key IS NOT NULL AND lease_until IS NOT NULL;
-- The jobs that are due, and wait until a job with their key is released: `ready` is 2.
CREATE INDEX jobs_blocked ON jobs (concurrency_key,
  (CASE WHEN run > 1 THEN due ELSE max(created_at, coalesce(run_at, 0)) END - 3600.0 * priority)) WHERE ready = 2;
