//! Names of keys, sessions, stores and tenants by their ids.

use std::collections::BTreeMap;

use futures::stream::{StreamExt, iter};
use keepsake_config::FailureClass;
use serde_json::Value;

/// Names that are looked up for one command; further objects are shown as their kind.
const MAX_LOOK_UPS: usize = 100;
const MAX_LOOK_UPS_IN_FLIGHT: usize = 8;

pub(crate) struct Kind {
    prefix: &'static str,
    list: &'static str,
    /// Shown in place of a name that the credential may not look up. It sees no tenant but its own.
    pub(crate) words: &'static str,
    name: fn(&Value) -> Option<String>,
}

static KINDS: [Kind; 4] = [
    Kind { prefix: "apikey_", list: "api_keys", words: "an API key", name },
    Kind { prefix: "sesn_", list: "sessions", words: "a session", name: name_of_session },
    Kind { prefix: "memstore_", list: "memory_stores", words: "a memory store", name },
    Kind { prefix: "wrkspc_", list: "tenants", words: "this tenant", name },
];

impl Kind {
    /// `None`: objects with this id have no names.
    pub(crate) fn of(id: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| id.starts_with(kind.prefix))
    }

    /// The kind without its article.
    pub(crate) fn noun(&self) -> &'static str {
        self.words.split_once(' ').map_or(self.words, |(_, noun)| noun)
    }
}

pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    /// Looks up the names of the ids of objects in these lists, each with one call of `get`, which takes the list
    /// of an object and its id. A name that the credential may not look up is not known.
    pub(crate) async fn look_up(
        mut ids: Vec<&str>,
        lists: &[&str],
        get: &impl AsyncFn(&str, &str) -> Result<Value, FailureClass>,
    ) -> Self {
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| Kind::of(id).is_some_and(|kind| lists.contains(&kind.list)));
        ids.truncate(MAX_LOOK_UPS);
        let mut names = BTreeMap::new();
        for kind in &KINDS {
            let of_kind = ids.iter().filter(|id| id.starts_with(kind.prefix));
            let look_ups = iter(of_kind).map(|id| look_up(get, kind, id));
            let mut answers = look_ups.buffered(MAX_LOOK_UPS_IN_FLIGHT);
            while let Some((id, found)) = answers.next().await {
                match found {
                    Ok(object) => names.extend((kind.name)(&object).map(|name| (id.to_owned(), name))),
                    // It was deleted.
                    Err(FailureClass::NotFound) => {}
                    // The others of the kind would fail, too.
                    Err(_) => break,
                }
            }
        }
        Self(names)
    }

    /// `None`: the name is not known.
    pub(crate) fn of(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }
}

async fn look_up<'a, G>(get: &G, kind: &Kind, id: &'a str) -> (&'a str, Result<Value, FailureClass>)
where
    G: AsyncFn(&str, &str) -> Result<Value, FailureClass>,
{
    (id, get(kind.list, id).await)
}

fn text_of<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object[field].as_str().filter(|text| !text.is_empty())
}

fn name(object: &Value) -> Option<String> {
    text_of(object, "name").map(str::to_owned)
}

/// The agent's name and the title of a session, as far as it has them.
fn name_of_session(session: &Value) -> Option<String> {
    let agent = &session["agent"];
    let agent = text_of(agent, "name").or_else(|| text_of(agent, "id"));
    let parts: Vec<_> = agent.into_iter().chain(text_of(session, "title")).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}
