-- The newest migration that was applied. A process starts only if this is at
-- least the newest migration it knows.
--
-- Runs with the owner's rights, because the app may not read the table of
-- migrations.
CREATE FUNCTION keepsake_schema_version() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
    SELECT max(version) FROM public._sqlx_migrations WHERE success
$$;
