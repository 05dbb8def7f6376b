//! The state that the services of the engine share.

use std::sync::Arc;
use std::time::Duration;

use keepsake_embeddings::Embedder;
use keepsake_tokens::Issuers;
use tokio_util::sync::CancellationToken;

use crate::access::AccessTimes;
use crate::activity::Activity;
use crate::attached::AttachedStores;
use crate::content::Contents;
use crate::context::Context;
use crate::endpoint_queries::EndpointQueries;
use crate::erasure_queue::ErasureQueue;
use crate::fair::FairSlots;
use crate::replica::Replica;
use crate::tokens::Tokens;
use crate::use_log::KeyUses;
use crate::write::Writer;

/// What more than one service uses. Each service derefs to it.
#[derive(Debug)]
pub struct Shared {
    pub(crate) context: Arc<Context>,
    pub(crate) contents: Arc<Contents>,
    pub(crate) writer: Writer,
    pub(crate) access: AccessTimes,
    pub(crate) activity: Arc<Activity>,
    pub(crate) key_uses: Arc<KeyUses>,
    pub(crate) attached: AttachedStores,
    pub(crate) tokens: Tokens,
    pub(crate) issuers: Arc<Issuers>,
    pub(crate) replica: Replica,
    pub(crate) erasure_queue: ErasureQueue,
    /// Slots for undos in several commits, and for copies of stores.
    pub(crate) long_work: FairSlots,
    /// Slots for building pages of sessions and of contents, which may be large.
    pub(crate) pages: FairSlots,
    pub(crate) search_cache_bytes: u64,
    /// Computes the meaning of texts.
    pub(crate) embedder: Arc<Embedder>,
    /// Requests of searches to an embeddings endpoint.
    pub(crate) endpoint_queries: EndpointQueries,
    pub(crate) request_deadline: Duration,
    pub(crate) audit_retention: Duration,
    /// Cancelled at shutdown, which stops manual runs of jobs.
    pub(crate) stopping: CancellationToken,
}

/// Declares a service: the shared state, and what only this service needs.
///
/// `service!(pub Versions)` needs nothing more. `service!(pub Usage(shared) { stores: Stores =
/// Stores::new(shared) })` has a field of its own, which is made from the shared state. With `(shared, search:
/// &Search)`, it is made from another service, too.
macro_rules! service {
    ($vis:vis $name:ident) => {
        $crate::shared::service!($vis $name(shared) {});
    };
    ($vis:vis $name:ident($shared:ident $(, $given:ident: $given_as:ty)*) { $($(#[$doc:meta])* $of_field:vis $field:ident: $of:ty = $value:expr),* $(,)? }) => {
        #[derive(Debug, Clone)]
        $vis struct $name {
            shared: ::std::sync::Arc<$crate::shared::Shared>,
            $($(#[$doc])* $of_field $field: $of,)*
        }

        impl $name {
            pub(crate) fn new($shared: &::std::sync::Arc<$crate::shared::Shared> $(, $given: $given_as)*) -> Self {
                Self { $($field: $value,)* shared: ::std::sync::Arc::clone($shared) }
            }
        }

        impl ::std::ops::Deref for $name {
            type Target = $crate::shared::Shared;

            fn deref(&self) -> &Self::Target {
                &self.shared
            }
        }
    };
}

pub(crate) use service;
