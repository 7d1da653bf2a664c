-- usable from 1
-- How long the lease of the latest claim is: whoever observes it must wait for that long. NULL: claimed by an older version.
ALTER TABLE jobs ADD COLUMN lease_seconds double precision;

-- Written before a lease is declared lost: the holder could not renew it either while the database took no writes.
CREATE TABLE write_check (
  id integer PRIMARY KEY,
  at double precision NOT NULL
);
