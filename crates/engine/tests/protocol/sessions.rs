//! Sessions: how long they and their tokens live, and what is kept of their calls.

mod events;
mod grants;
mod keeping;
mod tokens;

use std::sync::Arc;

use keepsake_core::{SessionId, StoreId};
use keepsake_engine::{AttachmentDraft, Engine, MadeSession, Principal, SessionDraft};
use keepsake_index::Access;
use serde_json::{Map, Value, json};

use crate::test_engine::{TestEngine, tool_call};

/// A session that attaches some stores.
fn draft(stores: &[(StoreId, Access)]) -> SessionDraft {
    SessionDraft {
        agent: json!("agent_1").into(),
        environment_id: "env_1".to_owned(),
        title: None,
        metadata: Map::new(),
        vault_ids: Vec::new(),
        attachments: stores
            .iter()
            .map(|(store_id, access)| AttachmentDraft {
                store_id: *store_id,
                access: Some(*access),
                instructions: None,
            })
            .collect(),
    }
}

impl TestEngine {
    async fn open(&self, stores: &[(StoreId, Access)]) -> MadeSession {
        let made = self.engine.sessions.create(&self.principal, draft(stores), None).await;
        made.unwrap()
    }
}

/// A session's token, as a replica knows it.
async fn holder(engine: &Engine, made: &MadeSession) -> Arc<Principal> {
    engine.auth.authenticate(made.token.as_deref().unwrap()).await.unwrap()
}

async fn call(engine: &Engine, principal: &Arc<Principal>, session_id: SessionId, input: Value) {
    let mounts = engine.sessions.mounts(principal, session_id).await.unwrap();
    let called = engine.tools.call(principal, mounts, "memory", tool_call(None, input));
    called.await.unwrap();
}
