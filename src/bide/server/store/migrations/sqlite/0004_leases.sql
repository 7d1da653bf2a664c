-- How long the lease of the latest claim is: whoever observes it must wait for that long. NULL: claimed by an older version.
ALTER TABLE jobs ADD COLUMN lease_seconds REAL;

-- Written before a lease is declared lost: the holder could not renew it either while the file took no writes.
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
