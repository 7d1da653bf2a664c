-- usable from 1
-- Counts of jobs per minute and per hour (`span` in seconds). Each is a sum; a histogram has one count per bucket.
CREATE TABLE rollups (
  tenant text COLLATE "C" NOT NULL,
  span bigint NOT NULL,
  at bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (tenant, span, at, kind, queue, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.005, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
