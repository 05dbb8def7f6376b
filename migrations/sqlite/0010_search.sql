-- The content that search terms are of, for SQLite; see the Postgres migration of
-- this number.

ALTER TABLE search_doc ADD COLUMN blob_id BLOB;
