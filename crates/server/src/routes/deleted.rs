//! The responses to deletions.

use keepsake_core::schemas::{
    DeletedMemoryStoreType, DeletedMemoryType, DeletedSessionResourceType, DeletedSessionType,
};
use keepsake_core::{MemoryId, ResourceId, SessionId, StoreId};
use serde::Serialize;
use utoipa::ToSchema;

macro_rules! deleted {
    ($($name:ident($id:ident, $type:ident);)*) => {$(
        /// The response to a deletion.
        #[derive(Debug, Serialize, ToSchema)]
        pub(crate) struct $name {
            id: $id,
            #[schema(inline)]
            r#type: $type,
        }

        impl From<$id> for $name {
            fn from(id: $id) -> Self {
                Self { id, r#type: $type }
            }
        }
    )*};
}

deleted! {
    DeletedMemoryStore(StoreId, DeletedMemoryStoreType);
    DeletedMemory(MemoryId, DeletedMemoryType);
    DeletedSession(SessionId, DeletedSessionType);
    DeletedSessionResource(ResourceId, DeletedSessionResourceType);
}
