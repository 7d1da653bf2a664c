-- usable from 1
-- The length of the lease of the latest claim; a lease that is observed unchanged for this long is lost. NULL: claimed by an
-- older version.
ALTER TABLE jobs ADD COLUMN lease_seconds double precision;

-- Written before a lease counts as lost: while the database accepts no writes, its holder cannot renew it either.
CREATE TABLE write_check (
  id integer PRIMARY KEY,
  at double precision NOT NULL
);

-- The progress of the attempts of a run, for counting lost workers, as JSON; NULL: unknown.
ALTER TABLE jobs ADD COLUMN loss_record text;

-- The id of this database. It is also stored with the files, so that no other database removes them.
CREATE TABLE store_id (id text NOT NULL);
INSERT INTO store_id VALUES (replace(gen_random_uuid()::text, '-', ''));

-- Bytes of the declared size that have not arrived; `bytes` counts those that have.
ALTER TABLE uploads ADD COLUMN reserved bigint NOT NULL DEFAULT 0;
