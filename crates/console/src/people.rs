//! Names of actors, in words.

use std::collections::HashMap;

use keepsake_core::{Actor, ApiKeyId};
use keepsake_engine::PageRequest;
use keepsake_index::Scope;

use crate::request::Caller;
use crate::text::markup::{Markup, id_link, short};

/// Keys whose names are looked up for one page.
const MAX_KEYS: u64 = 100;

/// Names of the API keys that the caller may see.
#[derive(Debug, Default)]
pub(crate) struct People(HashMap<ApiKeyId, String>);

impl People {
    /// Looks up the names of the newest keys, with one call. Without the right to see keys, ids are
    /// shown.
    pub(crate) async fn look_up(caller: &Caller) -> Self {
        if !caller.may(Scope::KeysAdmin) {
            return Self::default();
        }
        let page = PageRequest { limit: Some(MAX_KEYS), page: None };
        let found = caller.engine.keys.list(&caller.principal, &page).await;
        let keys = found.map(|page| page.items).unwrap_or_default();
        Self(keys.into_iter().map(|key| (key.api_key_id, key.name)).collect())
    }

    /// An actor, with a link to its key or session.
    pub(crate) fn show(&self, actor: Option<&Actor>) -> Markup {
        match actor {
            Some(Actor::ApiKey(api_key_id)) => {
                let href = format!("/console/keys/{api_key_id}");
                match self.0.get(api_key_id) {
                    Some(name) => Markup::trusted(format!(
                        "<a href=\"{href}\" title=\"API key {api_key_id}\">{}</a>",
                        Markup::text(name)
                    )),
                    None => Markup::trusted(format!("key {}", id_link(api_key_id, &href))),
                }
            }
            Some(Actor::Session(session_id)) => {
                let link = id_link(session_id, &format!("/console/sessions/{session_id}"));
                Markup::trusted(format!("session {link}"))
            }
            other => Markup::text(&actor_text(other)),
        }
    }

    /// `None`: the key's name is not known.
    pub(crate) fn name_of(&self, actor: Option<&Actor>) -> Option<&str> {
        match actor {
            Some(Actor::ApiKey(api_key_id)) => self.0.get(api_key_id).map(String::as_str),
            _ => None,
        }
    }
}

/// An actor without links.
pub(crate) fn actor_text(actor: Option<&Actor>) -> String {
    match actor {
        Some(Actor::ApiKey(api_key_id)) => format!("API key {}", short(&api_key_id.to_string())),
        Some(Actor::Session(session_id)) => format!("session {}", short(&session_id.to_string())),
        Some(Actor::User(subject)) => subject.clone(),
        Some(Actor::ServiceAccount(subject)) => format!("service {subject}"),
        Some(Actor::Imported(_, id)) => format!("{id} (imported)"),
        None => "a job or the operator".to_owned(),
    }
}
