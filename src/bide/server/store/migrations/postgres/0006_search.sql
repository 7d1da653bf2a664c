-- usable from 1
-- Labels, steps, and the values at those paths into the input that the kind declares.
CREATE TABLE search_terms (
  tenant text COLLATE "C" NOT NULL,
  value text COLLATE "C" NOT NULL,
  field text COLLATE "C" NOT NULL, -- label.KEY, step or input.PATH
  kind text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  job_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
);
-- For removals only: as an expression, so that it has no order that a list could use instead of the primary key.
CREATE INDEX search_terms_job ON search_terms (tenant, (job_id || ''));

-- The jobs of earlier releases that have no terms yet: after this id, up to and including the last. The upkeep adds them.
CREATE TABLE search_backfill (after text COLLATE "C" NOT NULL, last text COLLATE "C" NOT NULL);

-- Triggers, because a service of an earlier release may still write beside this one.
CREATE FUNCTION index_labels() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO search_terms SELECT NEW.tenant, t::json->>1, 'label.' || (t::json->>0), NEW.kind, NEW.queue, NEW.id
  FROM unnest(NEW.tags) AS t ON CONFLICT DO NOTHING;
  RETURN NULL;
END
$$;
CREATE FUNCTION delete_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM search_terms WHERE tenant = OLD.tenant AND job_id || '' = OLD.id;
  RETURN NULL;
END
$$;
CREATE TRIGGER jobs_labels AFTER INSERT ON jobs FOR EACH ROW WHEN (NEW.tags IS NOT NULL) EXECUTE FUNCTION index_labels();
CREATE TRIGGER jobs_terms AFTER DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION delete_terms();
INSERT INTO search_backfill SELECT '', max(id) FROM jobs HAVING max(id) IS NOT NULL;

-- The code of an error, for an index. The database calls a cast from text to json stable, but it depends on nothing else.
CREATE FUNCTION error_code(error text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT error::json->>'code' $$;
