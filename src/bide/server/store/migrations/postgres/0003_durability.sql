-- usable from 1
-- How long the lease of the latest claim is: whoever observes it must wait for that long. NULL: claimed by an older version.
ALTER TABLE jobs ADD COLUMN lease_seconds double precision;

-- Written before a lease is declared lost: the holder could not renew it either while the database took no writes.
CREATE TABLE write_check (
  id integer PRIMARY KEY,
  at double precision NOT NULL
);

-- How far the attempts of a run have come, as JSON; NULL: nothing is known.
ALTER TABLE jobs ADD COLUMN loss_record text;

-- Which database this is. It is also written beside the files, so that no other database removes them.
CREATE TABLE store_id (id text NOT NULL);
INSERT INTO store_id VALUES (replace(gen_random_uuid()::text, '-', ''));

-- Bytes of a declared size that have not arrived; `bytes` counts those that have.
ALTER TABLE uploads ADD COLUMN reserved bigint NOT NULL DEFAULT 0;
