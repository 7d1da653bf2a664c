-- usable from 1
-- Jobs with the same key share the limit of their kind on concurrent jobs; NULL: the job has no limit.
ALTER TABLE jobs ADD COLUMN concurrency_key text COLLATE "C";
-- True: the job is due, and waits until a job with its key is released. Else NULL.
ALTER TABLE jobs ADD COLUMN blocked boolean;
