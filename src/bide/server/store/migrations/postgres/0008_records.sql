-- usable from 1
-- Small records of several collections, such as webhooks and their deliveries. `text` is JSON.
CREATE TABLE records (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, collection, name)
);

-- The events that the webhook of this job receives, separated by commas; NULL: it has no webhook.
ALTER TABLE jobs ADD COLUMN webhook TEXT;
