//! `/admin/v1/token_keys`

use axum::extract::State;
use keepsake_engine::{Engine, RotatedKey, Rotation};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::By;
use super::body::OptionalAdminBody;
use crate::answer::Json;
use crate::error::ApiError;
use crate::schemas::{self, TokenKeyType};

/// The body of a key rotation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateTokenKey {
    /// Whether a key may have leaked. If true, within a minute every replica
    /// refuses all tokens that were signed before.
    #[serde(default)]
    compromised: bool,
}

/// A key that signs tokens, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenKey {
    /// The name of the key, sent in tokens as `kid`.
    id: String,
    #[schema(inline)]
    r#type: TokenKeyType,
    #[schema(value_type = schemas::Time)]
    signs_from: String,
}

impl From<RotatedKey> for TokenKey {
    fn from(key: RotatedKey) -> Self {
        Self { id: key.name, r#type: TokenKeyType, signs_from: key.signs_from.to_rfc3339() }
    }
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
    responses((status = 200, description = "The new key.", body = TokenKey)),
)]
pub(super) async fn rotate(
    State(engine): State<Engine>,
    By(by): By,
    OptionalAdminBody(body): OptionalAdminBody<RotateTokenKey>,
) -> Result<Json<TokenKey>, ApiError> {
    let why = if body.compromised { Rotation::Compromised } else { Rotation::Planned };
    let key = engine.tokens.rotate_key(why, by).await?;
    Ok(Json(key.into()))
}
