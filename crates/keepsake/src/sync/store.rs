//! The store's side: lists memories and changes them with preconditions.

use std::collections::BTreeMap;

use keepsake_client::{Client, ClientError, Events, Parameter};
use keepsake_config::{Failure, FailureClass};
use keepsake_core::{ContentHash, MemoryId, MemoryPath, VersionId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::plan::Known;
use crate::failures::{class_of, failure_of};
use crate::whole_store;

/// The memory store that a folder is synchronised with.
#[derive(Debug)]
pub(super) struct Store {
    client: Client,
    store_id: String,
}

/// How a step ended.
#[derive(Debug)]
pub(super) enum Attempt<T> {
    Done(T),
    /// The plan is outdated: the file or the memory has changed.
    Lost,
    /// It cannot be done, for this reason.
    Refused(String),
}

impl<T> Attempt<T> {
    /// The same end, with the result that `next` makes of this one.
    pub(super) fn map<U>(self, next: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Done(value) => Attempt::Done(next(value)),
            Self::Lost => Attempt::Lost,
            Self::Refused(reason) => Attempt::Refused(reason),
        }
    }
}

/// The memories of a store.
#[derive(Debug, Default)]
pub(super) struct Memories {
    pub(super) known: BTreeMap<MemoryPath, Known>,
    /// Paths that no file gets, with the reason.
    pub(super) refused: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Memory {
    id: MemoryId,
    #[serde(rename = "memory_version_id")]
    version_id: VersionId,
    path: String,
    content_sha256: String,
    content: Option<String>,
}

impl Memory {
    fn known(&self) -> Result<Known, Failure> {
        let hash = self.content_sha256.parse();
        Ok(Known {
            memory_id: self.id,
            hash: hash.map_err(Failure::of("the server's answer: content_sha256"))?,
            version_id: Some(self.version_id),
        })
    }
}

impl Store {
    pub(super) fn new(client: Client, store_id: String) -> Self {
        Self { client, store_id }
    }

    fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&["memory_stores", self.store_id.as_str()], rest].concat()
    }

    /// The limit of one memory; `None` if the credential may not read it.
    ///
    /// # Errors
    /// [`Failure`] of the request.
    pub(super) async fn bytes_per_memory(&self) -> Result<Option<u64>, Failure> {
        let limit: &[Parameter<'_>] = &[("limit", Some("1"))];
        match self.client.get::<Value>(&self.path(&["usage"]), limit).await {
            Ok(usage) => Ok(usage.pointer("/limits/bytes_per_memory").and_then(Value::as_u64)),
            Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(None),
            Err(error) => Err(failure_of("the store's limits cannot be read")(error)),
        }
    }

    /// All memories by path. A server that is wrong or hostile may name any path.
    ///
    /// # Errors
    /// [`Failure`] of the request.
    pub(super) async fn list(&self) -> Result<Memories, Failure> {
        let id_of: fn(&Memory) -> String = |memory| memory.id.to_string();
        let listed = whole_store::list(&self.client, &self.path(&[]), id_of).await?;
        let mut memories = Memories::default();
        for memory in listed.into_values() {
            let known = memory.known()?;
            match MemoryPath::parse(&memory.path) {
                Ok(path) => drop(memories.known.insert(path, known)),
                Err(error) => {
                    let reason = format!("the store's path {error}");
                    memories.refused.push((memory.path, reason));
                }
            }
        }
        Ok(memories)
    }

    /// The stream of the store's changes from now on; `None` if the credential may not
    /// follow them.
    ///
    /// # Errors
    /// [`Failure`] of the request.
    pub(super) async fn changes(&self) -> Result<Option<Events>, Failure> {
        let mut changes = self.client.events(&self.path(&["changes", "stream"]), &[], None);
        match changes.open().await {
            Ok(()) => Ok(Some(changes)),
            Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(None),
            Err(error) => Err(failure_of("the changes of the store cannot be followed")(error)),
        }
    }

    /// The content of a memory that still is what the plan saw.
    ///
    /// # Errors
    /// [`Failure`] if the pass cannot go on.
    pub(super) async fn content(&self, path: &MemoryPath, memory: Known) -> Result<Attempt<String>, Failure> {
        let id = memory.memory_id.to_string();
        let read = attempt(self.client.get::<Memory>(&self.path(&["memories", &id]), &[]).await)?;
        let read = match read {
            Attempt::Done(read) => read,
            Attempt::Lost => return Ok(Attempt::Lost),
            Attempt::Refused(reason) => return Ok(Attempt::Refused(reason)),
        };
        let content = read.content.unwrap_or_default();
        if read.path != path.as_str() || ContentHash::of(content.as_bytes()) != memory.hash {
            return Ok(Attempt::Lost);
        }
        Ok(Attempt::Done(content))
    }

    /// The current path of a memory; `None`: it was deleted.
    ///
    /// # Errors
    /// [`Failure`] if the pass cannot go on.
    pub(super) async fn path_of(&self, memory_id: MemoryId) -> Result<Attempt<Option<MemoryPath>>, Failure> {
        let id = memory_id.to_string();
        let view: &[Parameter<'_>] = &[("view", Some("basic"))];
        let read = self.client.get::<Memory>(&self.path(&["memories", &id]), view).await;
        match read {
            Ok(memory) => Ok(match MemoryPath::parse(&memory.path) {
                Ok(path) => Attempt::Done(Some(path)),
                Err(error) => {
                    Attempt::Refused(format!("its memory moved to {}, but a path {error}", memory.path))
                }
            }),
            Err(error) if class_of(&error) == FailureClass::NotFound => Ok(Attempt::Done(None)),
            Err(error) => Err(failure_of("a memory cannot be read")(error)),
        }
    }

    /// Whether the store's history has a version. It has not after the store was restored to
    /// an earlier state, nor once the version was erased or has expired. `None`: the
    /// credential may not ask, such as a session's token.
    ///
    /// # Errors
    /// [`Failure`] if the pass cannot go on.
    pub(super) async fn has_version(&self, version_id: VersionId) -> Result<Option<bool>, Failure> {
        let id = version_id.to_string();
        let path = self.path(&["memory_versions", &id]);
        let view: &[Parameter<'_>] = &[("view", Some("basic"))];
        match self.client.get::<IgnoredAny>(&path, view).await {
            Ok(_) => Ok(Some(true)),
            Err(error) if class_of(&error) == FailureClass::NotFound => Ok(Some(false)),
            Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(None),
            Err(error) => Err(failure_of("a version of a memory cannot be read")(error)),
        }
    }

    /// Creates a memory at a free path.
    ///
    /// # Errors
    /// [`Failure`] if the pass cannot go on.
    pub(super) async fn create(&self, path: &MemoryPath, content: &str) -> Result<Attempt<Known>, Failure> {
        let precondition = json!({"type": "not_exists"});
        let body = json!({"path": path.as_str(), "content": content, "precondition": precondition});
        self.write(&["memories"], &body).await
    }

    /// Replaces the content of a memory that still has the expected one.
    ///
    /// # Errors
    /// [`Failure`] if the pass cannot go on.
    pub(super) async fn replace(&self, memory: Known, content: &str) -> Result<Attempt<Known>, Failure> {
        let precondition = json!({"type": "content_sha256", "content_sha256": memory.hash.to_string()});
        let body = json!({"content": content, "precondition": precondition});
        self.write(&["memories", &memory.memory_id.to_string()], &body).await
    }

    /// Moves a memory that still has the expected content.
    ///
    /// # Errors
    /// [`Failure`] if the pass cannot go on.
    pub(super) async fn rename(&self, memory: Known, to: &MemoryPath) -> Result<Attempt<Known>, Failure> {
        let precondition = json!({"type": "content_sha256", "content_sha256": memory.hash.to_string()});
        let body = json!({"path": to.as_str(), "precondition": precondition});
        self.write(&["memories", &memory.memory_id.to_string()], &body).await
    }

    async fn write(&self, path: &[&str], body: &Value) -> Result<Attempt<Known>, Failure> {
        let written = attempt(self.client.post::<Memory>(&self.path(path), body).await)?;
        match written.map(|memory| memory.known()) {
            Attempt::Done(known) => Ok(Attempt::Done(known?)),
            Attempt::Lost => Ok(Attempt::Lost),
            Attempt::Refused(reason) => Ok(Attempt::Refused(reason)),
        }
    }

    /// Deletes a memory that still has the expected content.
    ///
    /// # Errors
    /// [`Failure`] if the pass cannot go on.
    pub(super) async fn delete(&self, memory: Known) -> Result<Attempt<()>, Failure> {
        let (id, hash) = (memory.memory_id.to_string(), memory.hash.to_string());
        let expected: &[Parameter<'_>] = &[("expected_content_sha256", Some(&hash))];
        let deleted = self.client.delete::<Value>(&self.path(&["memories", &id]), expected).await;
        attempt(deleted.map(drop))
    }
}

/// Distinguishes an answer about one memory from a failure of the whole pass.
fn attempt<T>(answer: Result<T, ClientError>) -> Result<Attempt<T>, Failure> {
    let error = match answer {
        Ok(answer) => return Ok(Attempt::Done(answer)),
        Err(error) => error,
    };
    match error.status().map(|status| status.as_u16()) {
        Some(404 | 409) => Ok(Attempt::Lost),
        // A quota is 429 without the advice to try again. A credential that may only
        // read gets 403 for each write. A missing content is 410.
        Some(400 | 403 | 410 | 413 | 429) if !error.is_transient() => Ok(Attempt::Refused(error.to_string())),
        _ => Err(failure_of("the store cannot be synchronised")(error)),
    }
}
