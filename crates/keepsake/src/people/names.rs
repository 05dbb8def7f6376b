//! Names of keys, sessions and stores, in words.

use std::collections::BTreeMap;

use futures::stream::{StreamExt, iter};
use keepsake_client::ClientError;
use keepsake_config::FailureClass;
use serde_json::Value;

use super::connection::Connection;
use super::text_of;
use crate::cli::IdsArgs;
use crate::failures::class_of;
use crate::output::actor_id;

/// Names that are looked up for one command; further objects are shown as their kind.
const MAX_LOOK_UPS: usize = 100;
const MAX_LOOK_UPS_IN_FLIGHT: usize = 8;

/// A kind of objects with names.
struct Kind {
    /// The beginning of its ids.
    prefix: &'static str,
    list: &'static str,
    /// Shown in place of a name that the credential may not look up.
    words: &'static str,
    name: fn(&Value) -> Option<String>,
}

const KINDS: [Kind; 3] = [
    Kind { prefix: "apikey_", list: "api_keys", words: "an API key", name },
    Kind { prefix: "sesn_", list: "sessions", words: "a session", name: name_of_session },
    Kind { prefix: "memstore_", list: "memory_stores", words: "a memory store", name },
];

/// Names by id.
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// Looks up the names of actors, of objects and of ids, each with one request. A name that the
    /// credential may not look up is not known.
    pub(super) async fn look_up(connection: &Connection, of: impl Iterator<Item = &Value>) -> Self {
        let mut ids: Vec<_> = of.filter_map(named_id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(MAX_LOOK_UPS);
        let mut names = BTreeMap::new();
        for kind in &KINDS {
            let of_kind = ids.iter().filter(|id| id.starts_with(kind.prefix));
            let look_ups = iter(of_kind).map(|id| look_up(connection, kind, id));
            let mut answers = look_ups.buffered(MAX_LOOK_UPS_IN_FLIGHT);
            while let Some((id, found)) = answers.next().await {
                match found {
                    Ok(object) => names.extend((kind.name)(&object).map(|name| (id.to_owned(), name))),
                    // It was deleted.
                    Err(error) if class_of(&error) == FailureClass::NotFound => {}
                    // The others of the kind would fail, too.
                    Err(_) => break,
                }
            }
        }
        Self(names)
    }

    /// An actor, an object or an id in words.
    pub(super) fn show(&self, named: &Value) -> String {
        let Some(id) = named_id(named) else {
            let is_imported = named["imported"] == true;
            let id = named["id"].as_str().or(named.as_str()).map_or_else(|| actor_id(named), str::to_owned);
            return if is_imported { format!("{id} (imported)") } else { id };
        };
        let kind = KINDS.iter().find(|kind| id.starts_with(kind.prefix));
        let words = kind.map_or(id, |kind| kind.words);
        self.0.get(id).map_or(words, String::as_str).to_owned()
    }
}

async fn look_up<'a>(
    connection: &Connection,
    kind: &Kind,
    id: &'a str,
) -> (&'a str, Result<Value, ClientError>) {
    (id, connection.client.get(&[kind.list, id], &[]).await)
}

/// Replaces actors, objects and ids at pointers in the items of a table by their names, unless ids are
/// wanted.
pub(super) async fn put_names(connection: &Connection, ids: IdsArgs, items: &mut [Value], pointers: &[&str]) {
    if ids.ids || !connection.printer.is_table() {
        return;
    }
    let of = items.iter().flat_map(|item| pointers.iter().filter_map(move |pointer| item.pointer(pointer)));
    let names = Names::look_up(connection, of).await;
    for item in items {
        for pointer in pointers {
            if let Some(named) = item.pointer_mut(pointer).filter(|named| !named.is_null()) {
                *named = names.show(named).into();
            }
        }
    }
}

/// The id of an object whose name can be looked up.
fn named_id(named: &Value) -> Option<&str> {
    if named["imported"] == true {
        return None;
    }
    let fields = [&named["api_key_id"], &named["session_id"], &named["id"], named];
    let id = fields.into_iter().find_map(Value::as_str)?;
    KINDS.iter().any(|kind| id.starts_with(kind.prefix)).then_some(id)
}

fn name(object: &Value) -> Option<String> {
    Some(text_of(object, "name").to_owned()).filter(|name| !name.is_empty())
}

/// The agent's name and the title of a session, as far as it has them.
fn name_of_session(session: &Value) -> Option<String> {
    let agent = &session["agent"];
    let agent = [text_of(agent, "name"), text_of(agent, "id")].into_iter().find(|name| !name.is_empty());
    let title = Some(text_of(session, "title")).filter(|title| !title.is_empty());
    let parts: Vec<_> = agent.into_iter().chain(title).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}
