-- Asks the other replicas to let this replica's next edit of a memory go first.
-- False: another replica holds a claim that has not run out.
CREATE FUNCTION claim_edit(
    p_tenant uuid, p_store uuid, p_memory uuid, p_replica uuid, p_now bigint, p_until bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    UPDATE memory m SET claimed_by = p_replica, claimed_until = p_until
     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory
           AND (m.claimed_by IS NULL OR m.claimed_by = p_replica OR m.claimed_until <= p_now);
    RETURN FOUND;
END
$$;
