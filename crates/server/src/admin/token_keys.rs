//! `/admin/v1/token_keys`

use axum::Json;
use axum::extract::State;
use keepsake_engine::{Engine, RotatedKey, Rotation};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Acting;
use super::body::OptionalAdminBody;
use crate::error::ApiError;
use crate::schemas::{self, TokenKeyType};

/// The body of a change of the key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateTokenKey {
    /// Whether a key may be in the wrong hands: nothing that was signed is
    /// believed any more, on every replica within a minute.
    #[serde(default)]
    compromised: bool,
}

/// A key that signs tokens; never the key itself.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenKey {
    /// Its name, which tokens have as `kid`.
    id: String,
    #[schema(inline)]
    r#type: TokenKeyType,
    #[schema(value_type = schemas::Time)]
    signs_from: String,
}

impl From<RotatedKey> for TokenKey {
    fn from(key: RotatedKey) -> Self {
        Self {
            id: key.name,
            r#type: TokenKeyType::Key,
            signs_from: key.signs_from.to_rfc3339(),
        }
    }
}

/// Change the key that signs tokens
///
/// Keys change by themselves: this is for when one must. Tokens that were signed
/// before stay good until they end, unless the key was compromised.
#[utoipa::path(
    post,
    path = "/token_keys/rotate",
    operation_id = "token_keys.rotate",
    tag = "Token keys",
    request_body = Option<RotateTokenKey>,
    responses((status = 200, description = "The new key.", body = TokenKey)),
)]
pub(super) async fn rotate(
    State(engine): State<Engine>,
    acting: Acting,
    OptionalAdminBody(body): OptionalAdminBody<RotateTokenKey>,
) -> Result<Json<TokenKey>, ApiError> {
    let why = if body.compromised {
        Rotation::Compromised
    } else {
        Rotation::Planned
    };
    let key = acting.on(&engine).rotate_token_key(why).await?;
    Ok(Json(key.into()))
}
