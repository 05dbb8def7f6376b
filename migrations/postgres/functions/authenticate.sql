-- The tenant, the API key and the tenant's limits for the hash of a secret.
-- No row: the secret is unknown.
CREATE FUNCTION authenticate(p_secret_sha256 bytea)
RETURNS TABLE (
    tenant_id uuid, api_key_id uuid, scopes jsonb, store_ids jsonb, expires_at bigint, revoked_at bigint,
    tenant_status text, limits jsonb, tenant_name text, key_name text
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    SELECT c.tenant_id, c.api_key_id INTO tenant_id, api_key_id FROM credential c
     WHERE c.secret_sha256 = p_secret_sha256;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_setting := set_config('keepsake.tenant', tenant_id::text, true);
    RETURN QUERY
        SELECT k.tenant_id, k.api_key_id, k.scopes, k.store_ids, k.expires_at, k.revoked_at, t.status, t.limits,
               t.name, k.name
          FROM api_key k JOIN tenant t ON t.tenant_id = k.tenant_id
         WHERE k.tenant_id = authenticate.tenant_id AND k.api_key_id = authenticate.api_key_id;
END
$$;

-- Records the hash of the secret of a key. The key belongs to the tenant of the
-- transaction.
--
-- Runs with the owner's rights, so that the app can add a credential but cannot
-- change one. PUBLIC must not have EXECUTE on it.
CREATE FUNCTION record_credential(p_secret_sha256 bytea, p_api_key uuid) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
    INSERT INTO public.credential (secret_sha256, tenant_id, api_key_id)
    VALUES (p_secret_sha256, nullif(current_setting('keepsake.tenant', true), '')::uuid, p_api_key)
$$;
REVOKE ALL ON FUNCTION record_credential FROM PUBLIC;
GRANT EXECUTE ON FUNCTION record_credential TO keepsake_app, keepsake_jobs;
