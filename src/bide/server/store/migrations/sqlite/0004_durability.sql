-- How long the lease of the latest claim is: whoever observes it must wait for that long. NULL: claimed by an older version.
ALTER TABLE jobs ADD COLUMN lease_seconds REAL;

-- Written before a lease is declared lost: the holder could not renew it either while the file took no writes.
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);

-- How far the attempts of a run have come, as JSON; NULL: nothing is known.
ALTER TABLE jobs ADD COLUMN loss_record TEXT;

-- Which database this is. It is also written beside the files, so that no other database removes them.
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO store_id VALUES (lower(hex(randomblob(16))));

-- Bytes of a declared size that have not arrived; `bytes` counts those that have.
ALTER TABLE uploads ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
