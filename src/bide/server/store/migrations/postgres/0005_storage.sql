-- usable from 1
-- Which database this is. It is also written beside the files, so that no other database removes them.
CREATE TABLE store_id (id text NOT NULL);
INSERT INTO store_id VALUES (replace(gen_random_uuid()::text, '-', ''));

-- Bytes of a declared size that have not arrived; `bytes` counts those that have.
ALTER TABLE uploads ADD COLUMN reserved bigint NOT NULL DEFAULT 0;
