-- usable from 1
-- concurrently
-- The jobs of a key that workers hold, and its blocked jobs by the expression of `core.jobs.fair.start_order`.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_concurrency ON jobs (concurrency_key) WHERE concurrency_key IS NOT NULL AND lease_until IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_blocked ON jobs (concurrency_key, (CASE WHEN run > 1 THEN due ELSE greatest(created_at, run_at) END - 3600.0 * priority), seq) WHERE blocked;
-- Scheduled jobs. Programs of earlier versions use the index jobs_due, which also has blocked jobs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_scheduled ON jobs (due) WHERE NOT ready AND blocked IS NULL AND due IS NOT NULL;
