//! Ids in paths.
//!
//! Text that is not an id of the expected kind is read as an id that no object has. So it is
//! answered exactly like an unknown id: after the engine has checked credential and store.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, MatchedPath, OriginalUri};
use axum::http::request::Parts;
use keepsake_core::Id;
use keepsake_core::id::{
    ApiKeyKind, ErasureKind, IdKind, MemoryKind, MemoryUndoKind, SessionKind, StoreKind, TenantKind,
    VersionKind,
};
use keepsake_index::AttachmentName;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

/// One value of the path, or a pair of values.
pub struct Path<T>(pub T);

pub trait FromPath {
    fn from_path(parameters: &Parameters) -> Self;
}

/// Any text; a job of this name may not exist.
pub struct JobName(pub String);

/// Replaces the framework's extractor, which fails completely when one parameter is not UTF-8.
pub struct Parameters(Vec<(String, String)>);

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
}

/// Invalid text becomes an id that no object has.
fn id_or_unused<K: IdKind>(text: &str) -> Id<K> {
    text.parse().unwrap_or_else(|_| Id::from_uuid(Uuid::nil()))
}

// Each kind of id with the name of its path parameter.
macro_rules! ids {
    ($($kind:ident = $name:literal;)*) => {$(
        impl FromPath for Id<$kind> {
            fn from_path(parameters: &Parameters) -> Self {
                id_or_unused(parameters.text($name))
            }
        }
    )*};
}

ids! {
    StoreKind = "memory_store_id";
    MemoryKind = "memory_id";
    VersionKind = "memory_version_id";
    SessionKind = "session_id";
    ErasureKind = "erasure_id";
    MemoryUndoKind = "undo_id";
    ApiKeyKind = "api_key_id";
    TenantKind = "tenant_id";
}

/// An attachment can also be named by its store's id.
impl FromPath for AttachmentName {
    fn from_path(parameters: &Parameters) -> Self {
        let text = parameters.text("resource_id");
        text.parse().map_or_else(|_| Self::Resource(id_or_unused(text)), Self::Store)
    }
}

impl FromPath for JobName {
    fn from_path(parameters: &Parameters) -> Self {
        Self(parameters.text("job").to_owned())
    }
}

impl<A: FromPath, B: FromPath> FromPath for (A, B) {
    fn from_path(parameters: &Parameters) -> Self {
        (A::from_path(parameters), B::from_path(parameters))
    }
}

impl<T: FromPath, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(T::from_path(&Parameters::of(parts))))
    }
}
