//! Ids in paths.
//!
//! What is no id of the kind asked for is taken for the id of nothing, so that
//! it is answered exactly as one that never existed: after the credential and
//! the store were looked at, in the engine's order.

use axum::extract::{FromRequestParts, MatchedPath, OriginalUri};
use axum::http::request::Parts;
use keepsake_core::id::IdKind;
use keepsake_core::{ApiKeyId, ErasureId, Id, MemoryId, SessionId, StoreId, TenantId, VersionId};
use keepsake_index::AttachmentName;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::error::ApiError;

/// The store that a path names.
pub(crate) struct InStore(pub(crate) StoreId);

/// The memory that a path names, and its store.
pub(crate) struct InMemory(pub(crate) StoreId, pub(crate) MemoryId);

/// The version that a path names, and its store.
pub(crate) struct InVersion(pub(crate) StoreId, pub(crate) VersionId);

/// The erasure that a path names.
pub(crate) struct OfErasure(pub(crate) ErasureId);

/// The session that a path names.
pub(crate) struct OfSession(pub(crate) SessionId);

/// What a path names of a session's attachments, and the session.
pub(crate) struct InResource(pub(crate) SessionId, pub(crate) AttachmentName);

/// The tenant that the operator's path names.
pub(crate) struct InTenant(pub(crate) TenantId);

/// The API key that a path names.
pub(crate) struct InKey(pub(crate) ApiKeyId);

/// The API key that the operator's path names, and its tenant.
pub(crate) struct InTenantKey(pub(crate) TenantId, pub(crate) ApiKeyId);

/// The name of a job that the operator's path has; there may be none of it.
pub(crate) struct OfJob(pub(crate) String);

/// The segments of a path beside those of its route.
///
/// The framework's own reading fails as a whole where one of them is not UTF-8.
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

/// The id that `text` is, or one that nothing has.
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
        // It goes by the id of the store, too.
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
    fn what_is_no_id_is_nobodys() {
        let memory_id = MemoryId::from_uuid(Uuid::from_u128(7));
        assert_eq!(id_or_nobody::<_>(&memory_id.to_string()), memory_id);
        let nobody = MemoryId::from_uuid(Uuid::nil());
        for text in ["", "mem_1", "memstore_00000000000000000000000001", "…"] {
            assert_eq!(id_or_nobody::<_>(text), nobody, "{text}");
        }
    }
}
