-- What workers hold is few, and the writer remembers it: an index would be one more page in every commit.
DROP INDEX jobs_lease;
