-- Lets the server log in as its two roles, each with the settings that it needs
-- (docs/configuration.md, "Backends").
-- A pooler in transaction mode needs this, because it keeps no `SET` of a session;
-- it also works without a pooler. Run it once, before or after the first migration,
-- as a user who may create roles:
--
--   psql -v app_password=... -v jobs_password=... -f login-roles.sql
--
-- `index.url` then logs in as keepsake_app, `index.jobs_url` as keepsake_jobs, and
-- `index.migrate_url` as the owner, without a pooler.
\set ON_ERROR_STOP on

SELECT format('CREATE ROLE %I NOBYPASSRLS', name)
FROM unnest(ARRAY['keepsake_app', 'keepsake_jobs']) AS wanted(name)
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
\gexec

ALTER ROLE keepsake_app LOGIN PASSWORD :'app_password';
ALTER ROLE keepsake_jobs LOGIN PASSWORD :'jobs_password';

-- For requests. The server refuses to start behind a pooler if one of these is
-- missing. `statement_timeout` should be a little less than
-- `index.call_timeout_seconds`.
ALTER ROLE keepsake_app SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE keepsake_app SET statement_timeout = '9s';
ALTER ROLE keepsake_app SET plan_cache_mode = 'force_generic_plan';
ALTER ROLE keepsake_app SET jit = 'off';
ALTER ROLE keepsake_app SET enable_seqscan = 'off';
ALTER ROLE keepsake_app SET enable_bitmapscan = 'off';
ALTER ROLE keepsake_app SET enable_sort = 'off';
ALTER ROLE keepsake_app SET work_mem = '16MB';

-- For jobs, which wait up to two minutes for a statement.
ALTER ROLE keepsake_jobs SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE keepsake_jobs SET statement_timeout = '108s';
ALTER ROLE keepsake_jobs SET lock_timeout = '1min';
