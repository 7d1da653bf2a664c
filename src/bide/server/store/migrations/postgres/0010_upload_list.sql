-- usable from 1
-- concurrently
-- The uploads of a tenant by status, newest first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS uploads_tenant ON uploads (tenant, status, id);
