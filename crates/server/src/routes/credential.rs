//! `/v1/credential`

use keepsake_engine::Credential;

use crate::answer::{Answer, Json};
use crate::auth::Caller;

/// Retrieve the credential
///
/// Whom the credential of the request stands for, and what it may do. Every API key and every token of an issuer
/// may make this call.
#[utoipa::path(
    get,
    path = "/credential",
    operation_id = "credential.retrieve",
    tag = "API keys",
    responses((status = 200, description = "The credential, without its secret.", body = Credential)),
)]
pub(crate) async fn retrieve(Caller(_, principal): Caller) -> Answer<Credential> {
    Ok(Json(principal.credential()?))
}
