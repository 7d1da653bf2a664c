-- For lists: the jobs of one status, kind and queue are a range that is sorted by id. It replaces the indexes on kind and status.
CREATE INDEX jobs_facets ON jobs (tenant, status, kind, queue, id);
DROP INDEX jobs_kind;
DROP INDEX jobs_status;
CREATE INDEX jobs_code ON jobs (tenant, json_extract(error, '$.code'), status, kind, queue, id) WHERE error IS NOT NULL;
-- The condition keeps short jobs out of the index: they are not what a list of the longest jobs is for.
CREATE INDEX jobs_longest ON jobs (tenant, status, kind, queue, finished_at - started_at, id) WHERE finished_at - started_at >= 0.01;

-- Labels, steps, and the values at those paths into the input that the kind declares.
CREATE TABLE search_terms (
  tenant TEXT NOT NULL,
  value TEXT NOT NULL,
  field TEXT NOT NULL, -- label.KEY, step or input.PATH
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  job_id TEXT NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
) WITHOUT ROWID;
-- The terms of the input, as JSON; they are deleted with the job.
ALTER TABLE inputs ADD COLUMN search TEXT;

-- The jobs of earlier releases that have no terms yet: after this id, up to and including the last. The upkeep adds them.
CREATE TABLE search_backfill (after TEXT NOT NULL, last TEXT NOT NULL);
INSERT INTO search_backfill SELECT '', max(id) FROM jobs HAVING max(id) IS NOT NULL;
