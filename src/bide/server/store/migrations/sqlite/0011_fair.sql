-- Claims read the jobs of one tenant after another, and those of a tenant by priority and age. The expression is that of
-- `core.jobs.fair.start_order`.
DROP INDEX jobs_claim;
CREATE INDEX jobs_claim ON jobs (queue, kind, tenant,
  (CASE WHEN run > 1 THEN due ELSE max(created_at, coalesce(run_at, 0)) END - 3600.0 * priority)) WHERE ready = 1;
