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
