//! The servers of a copy, and which store is copied to which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use keepsake_client::{Client, Query};
use keepsake_config::{Failure, FailureClass, cli::Result};
use keepsake_core::Purpose;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contexts::{Context, Contexts};
use crate::failures::{class_of, failure_of, of_client};
use crate::ids::candidates;
use crate::people::is_same_server;

/// Attempts to create a store on a server without idempotency keys.
const MAX_CREATIONS: u32 = 5;
const CREATION_WAIT: Duration = Duration::from_millis(500);
const ID_PREFIX: &str = "memstore_";

/// One side of a copy.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) client: Client,
    /// Whether it takes what only Keepsake's API has.
    pub(super) is_keepsake: bool,
    /// The store that the argument names: an id or a name.
    pub(super) store: Option<String>,
}

/// A memory store as an API shows it; other servers omit the last three fields.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct StoreObject {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    pub(super) archived_at: Option<String>,
    pub(super) expires_unused_after: Option<u64>,
    pub(super) sensitive_data_policy: Option<String>,
    pub(super) search_mode: Option<String>,
}

/// A store of the source, and where it is copied to.
#[derive(Debug, Default)]
pub(super) struct StorePair {
    pub(super) from: StoreObject,
    /// `None`: it is created.
    pub(super) to: Option<StoreObject>,
    pub(super) to_name: String,
}

impl Server {
    /// Connects to the server of `--from` or `--to`, whose name is `side`.
    pub(super) async fn connect(side: &'static str, place: &str, key_file: Option<&Path>) -> Result<Self> {
        let (address, store) = match place.split_once('#') {
            Some((_, "")) => {
                return Err(Failure::usage(format!("--{side} {place}: a memory store follows `#`")));
            }
            Some((address, store)) => (address, Some(store.to_owned())),
            None => (place, None),
        };
        let (url, key) = address_and_key(side, address, key_file)?;
        let key: SecretString = key.trim().to_owned().into();
        let usage = |error| of_client(error).within(format!("--{side}"));
        let plain = Client::of_compatible(&url, &key).map_err(usage)?;
        let is_keepsake = is_keepsake(&plain).await.map_err(|failure| failure.within(&url))?;
        let client = if is_keepsake {
            Client::new(&url, &key).map_err(usage)?.reading_for(Purpose::Backup)
        } else {
            plain
        };
        Ok(Self { client, is_keepsake, store })
    }

    /// All stores, the archived ones included.
    pub(super) async fn stores(&self) -> Result<Vec<StoreObject>> {
        let all: Query<'_> = &[("include_archived", Some("true"))];
        let mut pages = self.client.pages(&["memory_stores"], all);
        let failed = format!("the memory stores of {} cannot be listed", self.client.url());
        pages.take(usize::MAX).await.map_err(failure_of(failed))
    }

    /// Creates a store with the description and the metadata of another one.
    pub(super) async fn create_store(&self, like: &StoreObject, name: &str) -> Result<StoreObject> {
        let mut body = json!({"name": name, "metadata": like.metadata});
        if !like.description.is_empty() {
            body["description"] = like.description.as_str().into();
        }
        let mut attempt = 1;
        loop {
            let error = match self.client.post::<StoreObject>(&["memory_stores"], &body).await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            if attempt == MAX_CREATIONS || !error.is_outcome_unknown() {
                return Err(failure_of(format_args!("the memory store {name} was not created"))(error));
            }
            tokio::time::sleep(CREATION_WAIT * attempt).await;
            // The store may have been created: a second one of the name would be one too many.
            let made = self.stores().await?.into_iter().find(|store| store.is_open_and_named(name));
            if let Some(made) = made {
                return Ok(made);
            }
            attempt += 1;
        }
    }
}

impl StoreObject {
    fn is_open_and_named(&self, name: &str) -> bool {
        self.name == name && self.archived_at.is_none()
    }
}

/// The URL and the key of a side. `address` is a URL or the name of a context.
fn address_and_key(side: &str, address: &str, key_file: Option<&Path>) -> Result<(String, String)> {
    let context = if address.contains("://") { None } else { Some(context_of(side, address)?) };
    let variable = format!("KEEPSAKE_{}_API_KEY", side.to_uppercase());
    let key = match (key_file, std::env::var(&variable), &context) {
        (Some(file), ..) => std::fs::read_to_string(file)
            .map_err(Failure::of(format_args!("the key file {} cannot be read", file.display())))?,
        (None, Ok(key), _) => key,
        (None, Err(_), Some(context)) => context.api_key.clone(),
        // The key of the server that other commands call.
        (None, Err(_), None)
            if std::env::var("KEEPSAKE_URL").is_ok_and(|url| is_same_server(&url, address)) =>
        {
            std::env::var("KEEPSAKE_API_KEY").unwrap_or_default()
        }
        (None, Err(_), None) => String::new(),
    };
    if key.trim().is_empty() {
        return Err(Failure::usage(format!(
            "no API key is known for --{side} {address}: set {variable}, or give --{side}-key-file"
        )));
    }
    Ok((context.map_or_else(|| address.to_owned(), |context| context.url), key))
}

fn context_of(side: &str, name: &str) -> Result<Context> {
    let (known, _) = Contexts::of_user()?;
    known.contexts.get(name).cloned().ok_or_else(|| {
        Failure::usage(format!(
            "--{side} {name}: it is no context, which `keepsake context list` shows, and no URL, which \
             begins with http:// or https://"
        ))
    })
}

/// Whether a server answers a call that only Keepsake has. Any refusal means no.
async fn is_keepsake(client: &Client) -> Result<bool> {
    match client.get::<Value>(&["tools"], &[]).await {
        Ok(tools) => Ok(tools["data"].is_array() && tools["system_prompt"].is_string()),
        Err(error) => match class_of(&error) {
            FailureClass::Unavailable | FailureClass::Usage => Err(of_client(error)),
            _ => Ok(false),
        },
    }
}

/// The stores to copy, and where to.
pub(super) fn pairs(
    from: Vec<StoreObject>,
    to: &[StoreObject],
    from_store: Option<&str>,
    to_store: Option<&str>,
) -> Result<Vec<StorePair>> {
    let sources = match from_store {
        Some(store) => {
            let missing =
                || Failure::not_found(format!("--from: no memory store has the id or the name `{store}`"));
            vec![named(&from, store, "--from")?.ok_or_else(missing)?]
        }
        None if to_store.is_some() => {
            return Err(Failure::usage("--to names a memory store: --from must name one, too"));
        }
        None => from,
    };
    if sources.is_empty() {
        return Err(Failure::not_found("--from: there is no memory store"));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = sources.iter().find(|store| !names.insert(store.name.as_str())) {
        return Err(Failure::usage(format!(
            "--from: several memory stores have the name `{}`: copy each by its id, as URL#{}",
            twice.name, twice.id
        )));
    }
    let mut pairs = Vec::new();
    for from in sources {
        let target = match to_store {
            Some(store) => named(to, store, "--to")?,
            None => named_open(to, &from.name)?,
        };
        let to_name = match (&target, to_store) {
            (Some(target), _) if target.archived_at.is_some() => {
                return Err(Failure::conflict(format!("--to: the memory store {} is archived", target.id)));
            }
            (Some(target), _) => target.name.clone(),
            (None, Some(id)) if id.starts_with(ID_PREFIX) => {
                return Err(Failure::not_found(format!("--to: no memory store has the id {id}")));
            }
            (None, Some(name)) => name.to_owned(),
            (None, None) => from.name.clone(),
        };
        pairs.push(StorePair { from, to: target, to_name });
    }
    Ok(pairs)
}

/// The store with this id or name, or the only one whose id begins so; a name that archived stores have, too,
/// is that of the others.
fn named(stores: &[StoreObject], store: &str, side: &str) -> Result<Option<StoreObject>> {
    if let Some(found) = stores.iter().find(|found| found.id == store) {
        return Ok(Some(found.clone()));
    }
    if let Some(found) = named_open(stores, store).map_err(|failure| failure.within(side))? {
        return Ok(Some(found));
    }
    if let Some(found) = stores.iter().find(|found| found.name == store) {
        return Ok(Some(found.clone()));
    }
    let beginning = store.trim_end_matches('…');
    let begun =
        stores.iter().filter(|found| beginning.len() > ID_PREFIX.len() && found.id.starts_with(beginning));
    match begun.collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [found] => Ok(Some((*found).clone())),
        several => {
            let ids: Vec<_> = several.iter().map(|found| &found.id).collect();
            Err(Failure::usage(format!("{side}: {}", candidates(beginning, &ids))))
        }
    }
}

/// The only store of this name that is not archived.
fn named_open(stores: &[StoreObject], name: &str) -> Result<Option<StoreObject>> {
    let found: Vec<_> = stores.iter().filter(|store| store.is_open_and_named(name)).collect();
    match found.as_slice() {
        [] => Ok(None),
        [store] => Ok(Some((*store).clone())),
        several => {
            let ids: Vec<_> = several.iter().map(|store| store.id.as_str()).collect();
            Err(Failure::usage(format!(
                "several memory stores have the name `{name}`; give an id: {}",
                ids.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(id: &str, name: &str, is_archived: bool) -> StoreObject {
        let archived_at = is_archived.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({"id": id, "name": name, "archived_at": archived_at})).unwrap()
    }

    #[test]
    fn stores_are_paired_by_id_or_name() {
        let from = || vec![store("memstore_1", "notes", false), store("memstore_2", "old", true)];
        let to = [("memstore_7", "notes"), ("memstore_8", "two"), ("memstore_91", "two")];
        let to = to.map(|(id, name)| store(id, name, false));
        for (from_store, to_store, expected) in [
            (None, None, Ok(vec![("memstore_1", Some("memstore_7"), "notes"), ("memstore_2", None, "old")])),
            (Some("old"), Some("new"), Ok(vec![("memstore_2", None, "new")])),
            (Some("memstore_1"), Some("memstore_8"), Ok(vec![("memstore_1", Some("memstore_8"), "two")])),
            (Some("notes"), Some("memstore_9…"), Ok(vec![("memstore_1", Some("memstore_91"), "two")])),
            (Some("notes"), Some("memstore_"), Err(FailureClass::NotFound)),
            (Some("none"), None, Err(FailureClass::NotFound)),
            (Some("notes"), Some("two"), Err(FailureClass::Usage)),
            (None, Some("notes"), Err(FailureClass::Usage)),
        ] {
            let found = pairs(from(), &to, from_store, to_store);
            let found = found.as_deref().map_err(Failure::class).map(|pairs| {
                let shown = pairs.iter().map(|pair| {
                    (pair.from.id.as_str(), pair.to.as_ref().map(|to| to.id.as_str()), pair.to_name.as_str())
                });
                shown.collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{from_store:?} {to_store:?}");
        }
        let archived =
            pairs(from(), &[store("memstore_7", "notes", true)], Some("notes"), Some("memstore_7"));
        assert_eq!(archived.unwrap_err().class(), FailureClass::Conflict);
        let twice = vec![store("memstore_1", "a", false), store("memstore_2", "a", true)];
        assert_eq!(pairs(twice, &[], None, None).unwrap_err().class(), FailureClass::Usage);
    }
}
