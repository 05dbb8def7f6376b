//! `GET /.well-known/oauth-protected-resource/mcp/{memory_store_id}`
//!
//! RFC 9728: where an MCP client gets a token. A 401 of `/mcp` names this document.

use std::sync::Arc;

use axum::Extension;
use axum::http::{HeaderValue, Uri};
use keepsake_core::StoreId;
use keepsake_index::Scope;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, Json};
use crate::envelope::SharedProcess;
use crate::error::ApiError;
use crate::path::Path;

#[derive(Debug, Clone, Default)]
pub struct SignIn {
    /// Where clients reach the server, without a final slash.
    pub public_url: Option<Arc<str>>,
    pub issuers: Arc<[String]>,
}

/// A protected resource as RFC 9728 describes it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProtectedResource {
    /// The URL of the MCP server.
    resource: String,
    resource_name: &'static str,
    /// The issuers whose tokens are accepted.
    authorization_servers: Vec<String>,
    bearer_methods_supported: [&'static str; 1],
    scopes_supported: [&'static str; 2],
}

impl SignIn {
    /// `None`: clients cannot sign in.
    fn url(&self) -> Option<&str> {
        self.public_url.as_deref().filter(|_| !self.issuers.is_empty())
    }

    /// `www-authenticate` for a request without a valid credential.
    pub(crate) fn challenge(&self, uri: &Uri) -> HeaderValue {
        let path = uri.path();
        let store = path.strip_prefix("/mcp/").and_then(|id| id.parse::<StoreId>().ok());
        let described = self.url().zip(store).and_then(|(url, store_id)| {
            let challenge = format!(
                "Bearer resource_metadata=\"{url}/.well-known/oauth-protected-resource/mcp/{store_id}\""
            );
            HeaderValue::try_from(challenge).ok()
        });
        described.unwrap_or(HeaderValue::from_static("Bearer"))
    }
}

/// Describe how MCP clients sign in
///
/// The metadata of a protected resource, as in RFC 9728. 404 unless the server has
/// issuers and knows its public URL.
#[utoipa::path(
    get,
    path = "/.well-known/oauth-protected-resource/mcp/{memory_store_id}",
    operation_id = "mcp.protected_resource",
    responses((status = 200, description = "The issuers of accepted tokens.", body = ProtectedResource)),
)]
pub(crate) async fn describe(
    Extension(serving): Extension<SharedProcess>,
    Path(store_id): Path<StoreId>,
) -> Answer<ProtectedResource> {
    let sign_in = &serving.sign_in;
    let url = sign_in.url().ok_or_else(|| {
        ApiError::not_found("tokens of no issuer are accepted, or the server does not know its public URL")
    })?;
    Ok(Json(ProtectedResource {
        resource: format!("{url}/mcp/{store_id}"),
        resource_name: "Keepsake",
        authorization_servers: sign_in.issuers.to_vec(),
        bearer_methods_supported: ["header"],
        scopes_supported: [Scope::MemoryRead.name(), Scope::MemoryWrite.name()],
    }))
}
