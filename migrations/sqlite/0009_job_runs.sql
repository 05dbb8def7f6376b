-- Who ran a job, and how it was asked for, for SQLite; see the Postgres
-- migration of this number.

ALTER TABLE job_run ADD COLUMN owner BLOB;
ALTER TABLE job_run ADD COLUMN fence INTEGER;
ALTER TABLE job_run ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_run ADD COLUMN is_dry_run INTEGER NOT NULL DEFAULT 0;
CREATE INDEX job_run_started ON job_run (name, started_at, slot);
