-- usable from 1
-- concurrently
-- Claims read the jobs of one tenant after another, and those of a tenant by priority and age. The expression is that of
-- `core.jobs.fair.start_order`. It replaces the index on priorities.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_turns ON jobs (queue, kind, tenant COLLATE "C", (CASE WHEN run > 1 THEN due ELSE greatest(created_at, run_at) END - 3600.0 * priority), seq) WHERE ready;
DROP INDEX CONCURRENTLY IF EXISTS jobs_claim;
