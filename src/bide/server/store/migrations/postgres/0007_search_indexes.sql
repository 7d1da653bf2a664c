-- usable from 1
-- concurrently
-- For lists: the jobs of one status, kind and queue are a range that is sorted by id. It replaces the indexes on kind, status
-- and labels.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_facets ON jobs (tenant, status, kind, queue, id);
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_code ON jobs (tenant, error_code(error), status, kind, queue, id) WHERE error IS NOT NULL;
-- The condition keeps short jobs out of the index: they are not what a list of the longest jobs is for.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_longest ON jobs (tenant, status, kind, queue, (finished_at - started_at), id) WHERE finished_at - started_at >= 0.01;
DROP INDEX CONCURRENTLY IF EXISTS jobs_kind;
DROP INDEX CONCURRENTLY IF EXISTS jobs_status;
DROP INDEX CONCURRENTLY IF EXISTS jobs_tags;
