//! The change feed: announces changes to replicas, which drop their cache entries.

use keepsake_core::{TenantId, Timestamp};
use uuid::Uuid;

use crate::IndexError;
use crate::database::Tx;

const INSERT: &str = "INSERT INTO change_feed (at, kind, tenant_id, object_id) VALUES ($1, $2, $3, $4)";

/// Announces a change, in the transaction of the change.
pub(crate) async fn announce(
    tx: &mut Tx,
    kind: &str,
    tenant_id: TenantId,
    object_id: Option<Uuid>,
    at: Timestamp,
) -> Result<(), IndexError> {
    let query = tx.query(INSERT).bind((at, kind, tenant_id, object_id));
    query.execute().await?;
    Ok(())
}
