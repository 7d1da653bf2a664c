-- The W3C tracestate of a job whose spans are exported, often empty; NULL: the job is not traced.
ALTER TABLE jobs ADD COLUMN tracestate TEXT;
