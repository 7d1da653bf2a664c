-- usable from 1
-- Every read of the log names a tenant.
DROP INDEX events_job;
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
-- Events that stay in the log after their job was removed, for some time.
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');

-- `epoch`: the name of this numbering of events. `floor`: the greatest number of an event that was removed although its job
-- had been removed before; a reader that has not seen it cannot continue. `timeline` of the server's write-ahead log and `table`,
-- the id of this table: where the epoch began.
CREATE TABLE log_state (name text PRIMARY KEY, text text NOT NULL);
INSERT INTO log_state VALUES ('epoch', substr(replace(gen_random_uuid()::text, '-', ''), 1, 8)), ('floor', '0');
