//! The memories of a store, listed once and then brought up to date.

use std::collections::{BTreeMap, HashMap};

use keepsake_config::{Failure, cli::Result};
use keepsake_core::ContentHash;

use super::server::Server;
use crate::store_api::{ListedMemory, ReadMemory, StoreApi};

/// The memories of a store, by id.
pub(super) type Listed = BTreeMap<String, ListedMemory>;

pub(super) struct StoreListing {
    pub(super) store: StoreApi,
    pub(super) is_keepsake: bool,
    /// The memories at a place among the store's changes, if the server lists these.
    known: Option<(Listed, Option<String>)>,
    /// The hashes that this program computed, each with the version of the memory that it is of.
    hashes: HashMap<String, (String, String)>,
}

impl StoreListing {
    pub(super) fn new(server: &Server, id: String) -> Self {
        let store = StoreApi { client: server.client.clone(), id };
        Self { store, is_keepsake: server.is_keepsake, known: None, hashes: HashMap::new() }
    }

    /// Makes the next [`StoreListing::refresh`] list all memories.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    pub(super) async fn refresh(&mut self) -> Result<&Listed> {
        let known = self.known.take();
        let listed = match known {
            Some((listed, Some(place))) => self.store.list_since(listed, place).await,
            _ if self.is_keepsake => self.store.list().await,
            _ => self.store.list_once().await.map(|listed| (listed, None)),
        };
        let (mut listed, place) = listed.map_err(|failure| failure.within(self.store.client.url()))?;
        self.add_hashes(&mut listed).await?;
        Ok(&self.known.insert((listed, place)).0)
    }

    /// Computes the hashes that the server does not state.
    async fn add_hashes(&mut self, listed: &mut Listed) -> Result<()> {
        let without: Vec<String> = listed
            .values()
            .filter(|memory| memory.content_sha256.is_empty())
            .map(|memory| memory.id.clone())
            .collect();
        for id in without {
            let Some(memory) = listed.get_mut(&id) else { continue };
            let version = memory.memory_version_id.as_ref().or(memory.updated_at.as_ref()).cloned();
            if let (Some(version), Some((known, sha256))) = (&version, self.hashes.get(&id))
                && version == known
            {
                memory.content_sha256.clone_from(sha256);
                continue;
            }
            match self.store.read(&id, "full").await? {
                ReadMemory::Memory(read) => {
                    let content = read.content.unwrap_or_default();
                    memory.content_sha256 = ContentHash::of(content.as_bytes()).to_string();
                    memory.content_size_bytes = content.len() as u64;
                    let read_version = read.memory_version_id.or(read.updated_at);
                    if let Some(version) = read_version {
                        self.hashes.insert(id, (version, memory.content_sha256.clone()));
                    }
                }
                ReadMemory::Deleted => drop(listed.remove(&id)),
                ReadMemory::Unusable(reason) => {
                    return Err(Failure::new(format!("{}: {reason}", memory.path)));
                }
            }
        }
        Ok(())
    }
}
