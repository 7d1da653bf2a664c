-- Which database this is. It is also written beside the files, so that no other database removes them.
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO store_id VALUES (lower(hex(randomblob(16))));

-- Bytes of a declared size that have not arrived; `bytes` counts those that have.
ALTER TABLE uploads ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
