-- Who ran a job, and how it was asked for.
--
-- `owner` is the replica, `fence` that of its lease: a run that has not ended goes
-- on while the job's lease is of the same fence. A run `by_hand` has a slot of its
-- own; a dry one changed nothing.
ALTER TABLE job_run
    ADD COLUMN owner uuid,
    ADD COLUMN fence bigint,
    ADD COLUMN by_hand boolean NOT NULL DEFAULT false,
    ADD COLUMN is_dry_run boolean NOT NULL DEFAULT false;
CREATE INDEX job_run_started ON job_run (name, started_at, slot);
