//! Records of idempotent calls.

use keepsake_core::{Id, Refused, StoreId, TenantId, Timestamp};
use uuid::Uuid;

use crate::database::{Tx, from_row};
use crate::model::{EarlierCall, FORGOTTEN, Idempotency, KEPT};
use crate::{ChangeError, IndexError};

const FIND: &str = "SELECT version_seq, object_id, request_sha256, results FROM idempotency \
    WHERE tenant_id = $1 AND scope_sha256 = $2 AND created_at > $3";

/// Replaces an expired record.
const RECORD: &str = "INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, \
        version_seq, results, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
    ON CONFLICT (tenant_id, scope_sha256) DO UPDATE SET request_sha256 = excluded.request_sha256, \
        object_id = excluded.object_id, store_id = excluded.store_id, \
        version_seq = excluded.version_seq, results = excluded.results, created_at = excluded.created_at";

/// The object that an idempotent call created or changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallObject {
    pub(crate) object_id: Uuid,
    /// The store that contains the object, or that is the object.
    pub(crate) store_id: Option<StoreId>,
    pub(crate) version_seq: Option<i64>,
    /// Whether the call created no version, and `version_seq` is the existing one.
    pub(crate) is_kept: bool,
}

impl CallObject {
    pub(crate) const fn store(store_id: StoreId) -> Self {
        Self { object_id: store_id.uuid(), store_id: Some(store_id), version_seq: None, is_kept: false }
    }

    /// An object outside of any store.
    pub(crate) const fn object(object_id: Uuid) -> Self {
        Self { object_id, store_id: None, version_seq: None, is_kept: false }
    }
}

from_row!(EarlierCall { request_sha256, seq = "version_seq", object_id, results });

/// The record of the same call made earlier. Refuses the idempotency key of another request.
pub(crate) async fn earlier_call(
    tx: &mut Tx,
    tenant_id: TenantId,
    idempotency: Option<&Idempotency>,
) -> Result<Option<EarlierCall>, ChangeError> {
    let Some(call) = idempotency else {
        return Ok(None);
    };
    let query = tx.query(FIND).bind((tenant_id, call.scope_sha256.as_slice(), call.since));
    let earlier: Option<EarlierCall> = query.optional().await?;
    let is_same = |earlier: &EarlierCall| [call.request_sha256, FORGOTTEN].contains(&earlier.request_sha256);
    if earlier.as_ref().is_none_or(is_same) { Ok(earlier) } else { Err(Refused::KeyReused.into()) }
}

/// The object that the same call created or changed earlier, without a version.
pub(crate) async fn earlier_object<K>(
    tx: &mut Tx,
    tenant_id: TenantId,
    idempotency: Option<&Idempotency>,
) -> Result<Option<Id<K>>, ChangeError> {
    let Some(earlier) = earlier_call(tx, tenant_id, idempotency).await? else {
        return Ok(None);
    };
    let object_id = earlier.object_id.filter(|_| earlier.seq.is_none());
    Ok(Some(Id::from_uuid(object_id.ok_or(Refused::KeyReused)?)))
}

/// Does nothing without an idempotency key.
pub(crate) async fn record_call(
    tx: &mut Tx,
    tenant_id: TenantId,
    made: CallObject,
    idempotency: Option<&Idempotency>,
    at: Timestamp,
) -> Result<(), IndexError> {
    let Some(call) = idempotency else {
        return Ok(());
    };
    let query = tx.query(RECORD).bind((tenant_id, call.scope_sha256.as_slice()));
    let query = query.bind((call.request_sha256.as_slice(), made.object_id));
    let results = made.is_kept.then_some(KEPT);
    query.bind((made.store_id, made.version_seq)).bind((results, at)).execute().await?;
    Ok(())
}
