-- Few jobs are held, and the writer caches them. An index would add a page to every commit.
DROP INDEX jobs_lease;
