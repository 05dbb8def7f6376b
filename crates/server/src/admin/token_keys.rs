//! `/admin/v1/token_keys`

use keepsake_engine::{RotatedKey, Rotation};
use serde::Deserialize;
use utoipa::ToSchema;

use super::OperatorCaller;
use super::body::{AdminBody, OptionalAdminBody};
use crate::answer::{Answer, Json};

/// The body of a key rotation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateTokenKey {
    /// Whether a key may have leaked. If true, within a minute every replica
    /// refuses all tokens that were signed before.
    #[serde(default)]
    compromised: bool,
}

/// Rotate the token signing key
///
/// Keys also rotate automatically. Tokens signed before stay valid until they
/// expire, unless the key is reported as compromised.
#[utoipa::path(
    post,
    path = "/token_keys/rotate",
    operation_id = "token_keys.rotate",
    request_body = Option<RotateTokenKey>,
    responses((status = 200, description = "The new key.", body = RotatedKey)),
)]
pub(super) async fn rotate(
    OperatorCaller(engine, by): OperatorCaller,
    AdminBody(body): OptionalAdminBody<RotateTokenKey>,
) -> Answer<RotatedKey> {
    let why = if body.compromised { Rotation::Compromised } else { Rotation::Planned };
    Ok(Json(engine.tokens.rotate_key(why, by).await?))
}
