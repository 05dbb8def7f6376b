//! Names of actors, in words.

use std::collections::HashMap;

use keepsake_core::{Actor, ApiKeyId, SessionId};
use keepsake_engine::ShownVersion;
use keepsake_index::{Scope, SessionName};

use crate::request::Caller;
use crate::text::markup::{Markup, short};

/// Characters of a name that a page shows.
const MAX_CHARS: usize = 80;

/// Names of the actors on a page, as far as the caller may see them.
#[derive(Debug, Default)]
pub(crate) struct People {
    keys: HashMap<ApiKeyId, String>,
    /// The names and the agents of sessions.
    sessions: HashMap<SessionId, (String, String)>,
    /// Whether the caller may see the page of a key.
    has_key_pages: bool,
}

impl People {
    /// Looks up the names of some actors, with at most one query for the keys and one for the
    /// sessions.
    pub(crate) async fn look_up(caller: &Caller, actors: Vec<&Actor>) -> Self {
        let (mut api_key_ids, mut session_ids) = (Vec::new(), Vec::new());
        for actor in actors {
            match actor {
                Actor::ApiKey(api_key_id) => api_key_ids.push(*api_key_id),
                Actor::Session(session_id) => session_ids.push(*session_id),
                Actor::User(_) | Actor::ServiceAccount(_) | Actor::Imported(..) => {}
            }
        }
        let mut people = Self { has_key_pages: caller.may(Scope::KeysAdmin), ..Self::default() };
        people.add_keys(caller, api_key_ids).await;
        people.add_sessions(caller, session_ids).await;
        people
    }

    async fn add_keys(&mut self, caller: &Caller, mut api_key_ids: Vec<ApiKeyId>) {
        let principal = &caller.principal;
        if let (Some(Actor::ApiKey(own)), Some(name)) = (principal.actor(), &principal.key_name) {
            self.keys.insert(*own, name.to_string());
        }
        api_key_ids.sort_unstable();
        api_key_ids.dedup();
        if !api_key_ids.is_empty() && caller.may(Scope::KeysAdmin) {
            // A name that cannot be looked up is left out: the page shows the kind of the actor.
            let found = caller.engine.keys.names(principal, &api_key_ids).await;
            self.keys.extend(found.unwrap_or_default());
        }
    }

    async fn add_sessions(&mut self, caller: &Caller, mut session_ids: Vec<SessionId>) {
        session_ids.sort_unstable();
        session_ids.dedup();
        if !session_ids.is_empty() && caller.may(Scope::MemoryRead) {
            let found = caller.engine.sessions.names(&caller.principal, &session_ids).await;
            let named = |name: SessionName| (name.session_id, (session_name(&name), name.agent_name));
            self.sessions.extend(found.unwrap_or_default().into_iter().map(named));
        }
    }

    /// An actor, with a link to its key or session, if the caller may see that page. An actor without
    /// a known name is shown by its kind.
    pub(crate) fn show(&self, actor: Option<&Actor>) -> Markup {
        let (kind, id, href) = match actor {
            Some(Actor::ApiKey(api_key_id)) => {
                let href = self.has_key_pages.then(|| format!("/console/keys/{api_key_id}"));
                ("an API key", api_key_id.to_string(), href)
            }
            Some(Actor::Session(session_id)) => {
                ("a session", session_id.to_string(), Some(format!("/console/sessions/{session_id}")))
            }
            other => return Markup::text(&actor_text(other)),
        };
        let name = self.name_of(actor).map(|name| Markup::text(&cut(name)));
        Markup::trusted(match (name, href) {
            (Some(name), Some(href)) => {
                format!("<a href=\"{href}\" title=\"{id}\"><bdi>{name}</bdi></a>")
            }
            (Some(name), None) => format!("<bdi title=\"{id}\">{name}</bdi>"),
            (None, _) => format!("<span title=\"{id}\">{kind}</span>"),
        })
    }

    /// The name of a session's agent. `None`: the actor is none, or the name is not known.
    pub(crate) fn agent_of(&self, actor: &Actor) -> Option<&str> {
        match actor {
            Actor::Session(session_id) => self.sessions.get(session_id).map(|(_, agent)| agent.as_str()),
            Actor::ApiKey(_) | Actor::User(_) | Actor::ServiceAccount(_) | Actor::Imported(..) => None,
        }
    }

    /// `None`: the name is not known.
    pub(crate) fn name_of<'a>(&'a self, actor: Option<&'a Actor>) -> Option<&'a str> {
        let name = match actor? {
            Actor::ApiKey(api_key_id) => self.keys.get(api_key_id),
            Actor::Session(session_id) => self.sessions.get(session_id).map(|(name, _)| name),
            Actor::User(subject) | Actor::ServiceAccount(subject) => Some(subject),
            Actor::Imported(..) => None,
        };
        name.map(String::as_str)
    }
}

/// The authors of versions.
pub(crate) fn authors<'a>(versions: impl IntoIterator<Item = &'a ShownVersion>) -> Vec<&'a Actor> {
    versions.into_iter().filter_map(|shown| shown.version.created_by.as_ref()).collect()
}

/// The agent of a session and the session's title: `support-bot · Ticket 48502`.
pub(crate) fn session_name(name: &SessionName) -> String {
    match name.title.as_deref().filter(|title| !title.is_empty()) {
        Some(title) => format!("{} · {title}", name.agent_name),
        None => name.agent_name.clone(),
    }
}

/// The beginning of a name.
pub(crate) fn cut(name: &str) -> String {
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
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
