//! Sessions: what they are given, what their tokens may do, and when they end.

mod attaching;
mod events;
mod grants;
mod keeping;
mod tokens;

use std::sync::Arc;

use keepsake_core::{SessionId, StoreId};
use keepsake_engine::{
    AttachmentDraft, Engine, EngineError, MadeSession, NewKey, Principal, SessionDraft, StoreDraft,
    ToolAnswer,
};
use keepsake_index::{Access, Scope, Store};
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
    async fn store(&self, name: &str) -> Store {
        let draft = StoreDraft {
            name: name.to_owned(),
            description: format!("About {name}."),
            ..StoreDraft::default()
        };
        let made = self.engine.stores.create(&self.principal, draft, None).await;
        made.unwrap()
    }

    async fn open(&self, stores: &[(StoreId, Access)]) -> MadeSession {
        let made = self
            .engine
            .sessions
            .create(&self.principal, draft(stores), None)
            .await;
        made.unwrap()
    }

    /// A key of the tenant's with some scopes.
    async fn key_with(&self, scopes: &[Scope], store_ids: Option<Vec<StoreId>>) -> Arc<Principal> {
        let new = NewKey {
            tenant_id: self.principal.tenant_id,
            name: "some".to_owned(),
            scopes: scopes.to_vec(),
            store_ids,
            expires_at: None,
        };
        let (_, secret) = self.engine.operator.keys.create(new).await.unwrap();
        self.engine.auth.authenticate(secret.expose()).await.unwrap()
    }
}

/// A session's token, as a replica knows it.
async fn holder(engine: &Engine, made: &MadeSession) -> Arc<Principal> {
    engine
        .auth
        .authenticate(made.token.as_deref().unwrap())
        .await
        .unwrap()
}

async fn try_call(
    engine: &Engine,
    principal: &Arc<Principal>,
    session_id: SessionId,
    input: Value,
) -> Result<ToolAnswer, EngineError> {
    let mounts = engine.sessions.mounts(principal, session_id).await?;
    engine
        .tools
        .call(principal, mounts, "memory", tool_call(None, input))
        .await
}

async fn call(
    engine: &Engine,
    principal: &Arc<Principal>,
    session_id: SessionId,
    input: Value,
) -> ToolAnswer {
    try_call(engine, principal, session_id, input).await.unwrap()
}

fn refused_field<T: std::fmt::Debug>(outcome: Result<T, EngineError>) -> &'static str {
    match outcome {
        Err(EngineError::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}
