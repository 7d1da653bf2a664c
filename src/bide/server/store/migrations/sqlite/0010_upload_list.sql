-- The uploads of a tenant by status, newest first.
CREATE INDEX uploads_tenant ON uploads (tenant, status, id);
