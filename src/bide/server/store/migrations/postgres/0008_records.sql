-- usable from 1
-- Small records of several collections, such as webhooks and their deliveries. `text` is JSON.
CREATE TABLE records (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, collection, name)
);
