-- Counts of jobs per minute and per hour (`span` in seconds). Each is a sum; a histogram has one count per bucket.
CREATE TABLE rollups (
  tenant TEXT NOT NULL,
  span INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, span, at, kind, queue, name)
) WITHOUT ROWID;
