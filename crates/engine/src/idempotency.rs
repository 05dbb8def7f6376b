//! Idempotent calls: how a call is identified.
//!
//! A call is recorded in the same transaction as its changes. A repeated call
//! rebuilds its answer from those changes; the answer itself is not stored.

use std::time::Duration;

use keepsake_core::{Actor, ContentHash, SessionId, StoreId};
use keepsake_index::Idempotency;
use serde::Serialize;

use crate::cursor::digest;
use crate::shared::service;
use crate::{EngineError, Principal};

/// How long a repeated call is recognised.
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_hours(24);
const KEY_CHARS: usize = 255;

/// The version of the form in which tool calls are identified. A call of another form is
/// another call.
const TOOL_CALLS: &[u8] = b"tool_use.2";

service!(pub IdempotentCalls);

impl IdempotentCalls {
    /// Identifies an idempotent call by credential, method, path and key. `body` shows
    /// whether a second request under the same key is the same request.
    pub fn of_request(
        &self,
        principal: &Principal,
        method: &str,
        path: &str,
        key: &str,
        body: &[u8],
    ) -> Result<Idempotency, EngineError> {
        if !(1..=KEY_CHARS).contains(&key.chars().count()) {
            return Err(EngineError::invalid(
                "Idempotency-Key",
                format!("must be 1 to {KEY_CHARS} characters"),
            ));
        }
        let scope_sha256 =
            scope(principal, &[b"request", method.as_bytes(), path.as_bytes(), key.as_bytes()]);
        Ok(self.remembered(scope_sha256, *ContentHash::of(body).as_bytes()))
    }

    /// Identifies a tool call by credential, session, store, tool, block id and parsed
    /// input: other JSON texts of the same input make the same call.
    ///
    /// The same id with another input is another call, and so is the same block sent with
    /// another credential: harnesses that number their calls use the same ids in each
    /// session and for each user.
    pub(crate) fn of_tool_call(
        &self,
        principal: &Principal,
        session_id: Option<SessionId>,
        store_id: StoreId,
        tool: &str,
        tool_use_id: &str,
        call: &impl Serialize,
    ) -> Idempotency {
        let session = session_id.map(SessionId::uuid).unwrap_or_default();
        let call = serde_json::to_vec(call).unwrap_or_default();
        let scope_sha256 = scope(
            principal,
            &[
                TOOL_CALLS,
                session.as_bytes(),
                store_id.uuid().as_bytes(),
                tool.as_bytes(),
                tool_use_id.as_bytes(),
                &call,
            ],
        );
        self.remembered(scope_sha256, scope_sha256)
    }

    fn remembered(&self, scope_sha256: [u8; 32], request_sha256: [u8; 32]) -> Idempotency {
        Idempotency { scope_sha256, request_sha256, since: self.context.now().minus(REMEMBERED_FOR) }
    }
}

/// The identity starts with the credential, so that no caller sees another caller's
/// record.
fn scope(principal: &Principal, parts: &[&[u8]]) -> [u8; 32] {
    let id = principal.actor().map(Actor::id).unwrap_or_default();
    let caller = [principal.by.kind().as_bytes(), id.as_bytes()];
    digest(&[&caller[..], parts].concat())
}

#[cfg(test)]
mod tests {
    use keepsake_core::{ApiKeyId, Limits, TenantId};
    use keepsake_index::Auditor;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn identity_of_a_call_outlives_releases() {
        let key = Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(7)));
        let user = Actor::User("a:b".to_owned());
        for (actor, identity) in [
            (key, "8f0f89cf267aa3e6063ee4aa1c128c18ed0c179f30bb04cf3d719d67fb9eab69"),
            (user, "a84934dab19fc83b200e864985c6b8c2a7c69c01599197a8eaf111705341fdf3"),
        ] {
            let by = Auditor::Credential(actor);
            let principal = Principal::of_operator(TenantId::from_uuid(Uuid::nil()), by, Limits::default());
            let scope_sha256 = scope(&principal, &[b"request", b"POST", b"/v1/memory_stores", b"k"]);
            assert_eq!(ContentHash::from(scope_sha256).to_string(), identity);
        }
    }
}
