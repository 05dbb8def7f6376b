//! The responses to deletions.

use keepsake_core::Id;
use keepsake_core::id::{MemoryKind, ResourceKind, SessionKind, StoreKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::schemas;

macro_rules! deleted {
    ($($name:ident($kind:ident, $schema:ident, $type:ident);)*) => {$(
        /// The response to a deletion.
        #[derive(Debug, Serialize, ToSchema)]
        pub(crate) struct $name {
            #[schema(value_type = schemas::$schema)]
            id: Id<$kind>,
            #[schema(inline)]
            r#type: schemas::$type,
        }

        impl From<Id<$kind>> for $name {
            fn from(id: Id<$kind>) -> Self {
                Self { id, r#type: schemas::$type }
            }
        }
    )*};
}

deleted! {
    DeletedMemoryStore(StoreKind, MemoryStoreId, DeletedMemoryStoreType);
    DeletedMemory(MemoryKind, MemoryId, DeletedMemoryType);
    DeletedSession(SessionKind, SessionId, DeletedSessionType);
    DeletedSessionResource(ResourceKind, SessionResourceId, DeletedSessionResourceType);
}
