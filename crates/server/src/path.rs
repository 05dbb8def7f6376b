//! Ids in paths.
//!
//! Text that is not an id of the expected kind is read as an id that no object
//! has. So it is answered exactly like an id that never existed: after the
//! credential and the store were checked, in the engine's order.

use axum::extract::{FromRequestParts, MatchedPath, OriginalUri};
use axum::http::request::Parts;
use keepsake_core::id::IdKind;
use keepsake_core::{ApiKeyId, ErasureId, Id, MemoryId, SessionId, StoreId, TenantId, VersionId};
use keepsake_index::AttachmentName;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::error::ApiError;

/// The store id of a path.
pub(crate) struct InStore(pub(crate) StoreId);

/// The memory id of a path, and its store.
pub(crate) struct InMemory(pub(crate) StoreId, pub(crate) MemoryId);

/// The version id of a path, and its store.
pub(crate) struct InVersion(pub(crate) StoreId, pub(crate) VersionId);

/// The erasure id of a path.
pub(crate) struct OfErasure(pub(crate) ErasureId);

/// The session id of a path.
pub(crate) struct OfSession(pub(crate) SessionId);

/// The session id of a path, and the name of one of its attachments.
pub(crate) struct InResource(pub(crate) SessionId, pub(crate) AttachmentName);

/// The tenant id of an operator's path.
pub(crate) struct InTenant(pub(crate) TenantId);

/// The API key id of a path.
pub(crate) struct InKey(pub(crate) ApiKeyId);

/// The API key id of an operator's path, and its tenant.
pub(crate) struct InTenantKey(pub(crate) TenantId, pub(crate) ApiKeyId);

/// The job name of an operator's path; the job may not exist.
pub(crate) struct OfJob(pub(crate) String);

/// The parameters of a path.
///
/// The framework's own extractor fails completely when one of them is not
/// UTF-8.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn of(parts: &Parts) -> Self {
        let route = parts.extensions.get().map_or("", MatchedPath::as_str);
        let uri = parts.extensions.get().map_or(&parts.uri, |OriginalUri(uri)| uri);
        let named = route.split('/').zip(uri.path().split('/'));
        let named = named.filter_map(|(name, text)| {
            let name = name.strip_prefix('{')?.strip_suffix('}')?;
            let text = percent_decode_str(text).decode_utf8().ok()?;
            Some((name.to_owned(), text.into_owned()))
        });
        Self(named.collect())
    }

    fn text(&self, name: &str) -> &str {
        let mut pairs = self.0.iter();
        let text = pairs.find_map(|(key, text)| (key == name).then_some(text.as_str()));
        text.unwrap_or_default()
    }

    fn id<K: IdKind>(&self, name: &str) -> Id<K> {
        id_or_nobody(self.text(name))
    }

    fn store_id(&self) -> StoreId {
        self.id("memory_store_id")
    }
}

/// Parses an id; invalid text becomes an id that no object has.
fn id_or_nobody<K: IdKind>(text: &str) -> Id<K> {
    text.parse().unwrap_or_else(|_| Id::from_uuid(Uuid::nil()))
}

impl<S: Send + Sync> FromRequestParts<S> for InStore {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(Parameters::of(parts).store_id()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InMemory {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let parameters = Parameters::of(parts);
        Ok(Self(parameters.store_id(), parameters.id("memory_id")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InVersion {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let parameters = Parameters::of(parts);
        Ok(Self(parameters.store_id(), parameters.id("memory_version_id")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfErasure {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(Parameters::of(parts).id("erasure_id")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(Parameters::of(parts).id("session_id")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InResource {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let parameters = Parameters::of(parts);
        // An attachment can also be named by its store's id.
        let name = match parameters.text("resource_id").parse() {
            Ok(store_id) => AttachmentName::Store(store_id),
            Err(_) => AttachmentName::Resource(parameters.id("resource_id")),
        };
        Ok(Self(parameters.id("session_id"), name))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InTenant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(Parameters::of(parts).id("tenant_id")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(Parameters::of(parts).id("api_key_id")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InTenantKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let parameters = Parameters::of(parts);
        Ok(Self(parameters.id("tenant_id"), parameters.id("api_key_id")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfJob {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(Parameters::of(parts).text("job").to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_id_becomes_an_unused_id() {
        let memory_id = MemoryId::from_uuid(Uuid::from_u128(7));
        assert_eq!(id_or_nobody::<_>(&memory_id.to_string()), memory_id);
        let nobody = MemoryId::from_uuid(Uuid::nil());
        for text in ["", "mem_1", "memstore_00000000000000000000000001", "…"] {
            assert_eq!(id_or_nobody::<_>(text), nobody, "{text}");
        }
    }
}
