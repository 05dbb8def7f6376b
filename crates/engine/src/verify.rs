//! Verifies that index and blob store are consistent: every row can be read,
//! every blob that a row names exists and matches the row, every counter
//! matches a recount, and the master keys open the secrets. Changes nothing.

use std::collections::{HashMap, HashSet};

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::BlobError;
use keepsake_core::{BlobKey, ContentHash, MemoryId, StoreId, TenantId, VersionId};
use keepsake_index::{NamedBlob, Recount, SearchSince, StoreCount, TenantCount};
use keepsake_search::ANALYSER;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::EngineError;
use crate::shared::service;
use crate::write::search_row;

const BATCH: u32 = 1000;
/// Maximum number of problems that are reported individually.
const MAX_REPORTED: usize = 10_000;

/// The counts of a verification and the problems found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Verification {
    pub tenants: u64,
    #[serde(rename = "memory_stores")]
    pub stores: u64,
    /// Most of the versions have a blob.
    #[serde(rename = "memory_versions")]
    pub versions: u64,
    pub blobs: u64,
    /// Bytes of the blobs.
    pub bytes: u64,
    pub problem_count: u64,
    /// The first 10,000 problems.
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Problem {
    DamagedIndex {
        /// The message of the database.
        message: String,
    },
    /// The damage kept the rest from being verified.
    NotVerified {
        /// The error of the failed check.
        message: String,
    },
    /// The configured master keys do not open a secret of the server: no server would start.
    UnreadableSecret {
        /// What kept it closed.
        message: String,
    },
    /// The search terms of a memory are not those of its content.
    DamagedSearchTerms {
        #[serde(rename = "tenant")]
        tenant_id: TenantId,
        #[serde(rename = "memory_store")]
        store_id: StoreId,
        /// The memory may not exist.
        #[serde(rename = "memory")]
        memory_id: MemoryId,
    },
    /// A version names a blob that does not exist.
    MissingBlob {
        /// Contains the version that introduced the blob.
        #[serde(flatten, serialize_with = "ids_of_blob")]
        key: BlobKey,
    },
    /// A blob differs from its version's record.
    DamagedBlob {
        #[serde(flatten, serialize_with = "ids_of_blob")]
        key: BlobKey,
        /// The recorded size.
        expected_bytes: u64,
        /// The actual size.
        found_bytes: u64,
    },
    /// Counters or directories of a store differ from a recount, or some heads have no
    /// version.
    StoreCount {
        #[serde(rename = "tenant")]
        tenant_id: TenantId,
        #[serde(rename = "memory_store")]
        store_id: Option<StoreId>,
        #[serde(flatten)]
        count: StoreCount,
    },
    /// Counters of a tenant differ from a recount.
    TenantCount {
        #[serde(rename = "tenant")]
        tenant_id: TenantId,
        #[serde(flatten)]
        count: TenantCount,
    },
}

fn ids_of_blob<S: Serializer>(key: &BlobKey, serializer: S) -> Result<S::Ok, S::Error> {
    let ids = json!({"tenant": key.tenant_id, "memory_store": key.store_id, "memory_version": key.blob_id});
    ids.serialize(serializer)
}

impl Verification {
    fn report(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < MAX_REPORTED {
            self.problems.push(problem);
        }
    }
}

service!(pub Verifier);

impl Verifier {
    /// Verifies every row, store, tenant and blob; reads `at_once` blobs concurrently. If
    /// rows are damaged, an error of a later check is reported as a problem, so that the
    /// damage is still reported.
    ///
    /// Concurrent changes by a server are not reported as problems: a blob counts as
    /// missing only while a row still names it.
    pub async fn run(
        &self,
        at_once: usize,
        mut tell: impl FnMut(&Verification) + Send,
    ) -> Result<Verification, EngineError> {
        let mut found = Verification::default();
        for message in self.context.index.upkeep.find_damage().await? {
            found.report(Problem::DamagedIndex { message });
        }
        let is_damaged = found.problem_count > 0;
        match self.compare(at_once.max(1), &mut found, &mut tell).await {
            Err(error) if is_damaged => found.report(Problem::NotVerified { message: error.to_string() }),
            compared => compared?,
        }
        Ok(found)
    }

    /// Opens the secrets, and compares counters, blobs and search terms with the rows.
    async fn compare(
        &self,
        at_once: usize,
        found: &mut Verification,
        tell: &mut (impl FnMut(&Verification) + Send),
    ) -> Result<(), EngineError> {
        match self.context.secrets.check().await {
            Err(error @ EngineError::Secret(_)) => {
                found.report(Problem::UnreadableSecret { message: error.to_string() });
            }
            checked => {
                checked?;
            }
        }
        self.counters(found, tell).await?;
        self.stray_terms(found).await?;
        self.blobs(at_once, found, tell).await
    }

    /// The path of the version that created a blob, if it is known.
    pub async fn path_of_blob(&self, key: &BlobKey) -> Result<Option<String>, EngineError> {
        let found = self.context.index.versions.find(key.tenant_id, key.store_id, key.blob_id).await?;
        let version = found.and_then(|(_, version)| version);
        Ok(version.and_then(|version| version.path).map(|path| path.as_str().to_owned()))
    }

    async fn counters(
        &self,
        found: &mut Verification,
        tell: &mut (impl FnMut(&Verification) + Send),
    ) -> Result<(), EngineError> {
        let (upkeep, mut after) = (&self.context.index.upkeep, None);
        loop {
            let places = upkeep.places_after(after, BATCH).await?;
            after = places.last().copied();
            if after.is_none() {
                return Ok(());
            }
            for place @ (tenant_id, store_id) in places {
                let Some(recount) = upkeep.recount(place, false).await? else {
                    continue; // deleted meanwhile
                };
                let is_wrong = recount.has_drifted() || recount.lost_heads() > 0;
                let problem = match recount {
                    Recount::Store(count) => {
                        found.stores += 1;
                        found.versions += u64::try_from(count.version_count.counted).unwrap_or_default();
                        tell(found);
                        Problem::StoreCount { tenant_id, store_id, count }
                    }
                    Recount::Tenant(count) => {
                        found.tenants += 1;
                        Problem::TenantCount { tenant_id, count }
                    }
                };
                if is_wrong {
                    found.report(problem);
                }
            }
        }
    }

    /// Adds the hashes of a store's search terms, each with the blob that the terms were made
    /// from. They are computed from the stored terms, since the index stores no such hashes.
    async fn note_terms(
        &self,
        (tenant_id, store_id): (TenantId, StoreId),
        terms: &mut TermsOfStores,
    ) -> Result<(), EngineError> {
        let whole =
            SearchSince { place: None, analyser: ANALYSER, unindexed: Vec::new(), may_be_whole: true };
        let search = &self.context.index.search;
        let of_store = terms.entry((tenant_id, store_id)).or_default();
        let Some(changes) = search.changes(tenant_id, store_id, &whole).await? else {
            return Ok(()); // deleted meanwhile
        };
        for memory in changes.memories {
            let Some(head) = memory.head else { continue };
            if let Some(stored) = head.terms {
                let hash = ContentHash::of(&stored);
                of_store.entry(head.version.blob_id).or_default().push((memory.memory_id, hash));
            }
        }
        Ok(())
    }

    /// Reports search terms that belong to no memory.
    async fn stray_terms(&self, found: &mut Verification) -> Result<(), EngineError> {
        let mut after = None;
        loop {
            let terms = self.context.index.upkeep.terms_after(after, BATCH).await?;
            let Some((last, _)) = terms.last() else {
                return Ok(());
            };
            after = Some(*last);
            for ((tenant_id, store_id, memory_id), _) in terms.into_iter().filter(|(_, is_stray)| *is_stray) {
                found.report(Problem::DamagedSearchTerms { tenant_id, store_id, memory_id });
            }
        }
    }

    /// A content that is missing where the engine reads content; `None`: the first
    /// content that a version names is there, or there is no version.
    pub async fn misplaced_content(&self) -> Result<Option<BlobKey>, EngineError> {
        let named = self.context.index.upkeep.named_blobs(None, 1).await?;
        let Some(row) = named.first().filter(|row| row.is_live) else {
            return Ok(None);
        };
        let is_there = self.context.blobs.contains(&row.key).await?;
        Ok((!is_there).then_some(row.key))
    }

    async fn blobs(
        &self,
        at_once: usize,
        found: &mut Verification,
        tell: &mut (impl FnMut(&Verification) + Send),
    ) -> Result<(), EngineError> {
        let mut after: Option<BlobKey> = None;
        let mut terms = TermsOfStores::default();
        loop {
            let mut rows = self.context.index.upkeep.named_blobs(after.as_ref(), BATCH).await?;
            drop_last_key(&mut rows, BATCH as usize);
            let Some(last) = rows.last().map(|row| row.key) else {
                return Ok(());
            };
            rows.retain(|row| row.is_live);
            let stores: HashSet<_> = rows.iter().map(|row| store_of(&row.key)).collect();
            terms.retain(|store, _| stores.contains(store));
            for store in stores {
                if !terms.contains_key(&store) {
                    self.note_terms(store, &mut terms).await?;
                }
            }
            let mut looks = stream::iter(rows.chunk_by(|one, other| one.key == other.key))
                .map(|rows| {
                    let key = &rows[0].key;
                    let terms = terms.get(&store_of(key)).and_then(|terms| terms.get(&key.blob_id));
                    self.blob(rows, terms.map_or(&[], Vec::as_slice))
                })
                .buffer_unordered(at_once);
            while let Some((size_bytes, problems)) = looks.try_next().await? {
                found.blobs += 1;
                found.bytes += size_bytes;
                for problem in problems {
                    found.report(problem);
                }
                tell(found);
            }
            after = Some(last);
        }
    }

    /// Reads a blob and compares it with all rows that name it, and with the search terms
    /// that were made from it.
    async fn blob(
        &self,
        rows: &[NamedBlob],
        terms: &[(MemoryId, ContentHash)],
    ) -> Result<(u64, Vec<Problem>), EngineError> {
        let key = rows[0].key;
        let max_bytes = rows.iter().map(|row| row.size_bytes).max().unwrap_or_default();
        let bytes = match self.context.blobs.get(&key, max_bytes).await {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => {
                let is_named = self.context.index.upkeep.blob_is_named(&key).await?;
                let missing = is_named.then_some(Problem::MissingBlob { key });
                return Ok((0, Vec::from_iter(missing)));
            }
            Err(BlobError::TooLarge { found_bytes, .. }) => Err(found_bytes),
            Err(error) => return Err(error.into()),
        };
        let found_bytes = bytes.as_ref().map_or_else(|bytes| *bytes, |bytes| bytes.len() as u64);
        let sha256 = bytes.as_ref().ok().map(|bytes| ContentHash::of(bytes));
        let wrong = rows
            .iter()
            .find(|row| row.size_bytes != found_bytes || row.sha256.is_none() || row.sha256 != sha256);
        let problems = match (wrong, bytes) {
            (None, Ok(bytes)) => wrong_terms(key, &bytes, terms).await?,
            (wrong, _) => Vec::from_iter(wrong.map(|row| Problem::DamagedBlob {
                key,
                expected_bytes: row.size_bytes,
                found_bytes,
            })),
        };
        Ok((found_bytes, problems))
    }
}

/// The hashes of the search terms of some stores: for each blob, the hashes of the
/// memories that hold it.
type TermsOfStores = HashMap<(TenantId, StoreId), HashMap<VersionId, Vec<(MemoryId, ContentHash)>>>;

const fn store_of(key: &BlobKey) -> (TenantId, StoreId) {
    (key.tenant_id, key.store_id)
}

/// The memories whose search terms are not those of their content.
async fn wrong_terms(
    key: BlobKey,
    content: &[u8],
    terms: &[(MemoryId, ContentHash)],
) -> Result<Vec<Problem>, EngineError> {
    let (false, Ok(content)) = (terms.is_empty(), std::str::from_utf8(content)) else {
        return Ok(Vec::new());
    };
    let expected = ContentHash::of(&search_row(content.into()).await?.terms);
    let wrong = terms.iter().filter(|(_, hash)| *hash != expected);
    let problem = |(memory_id, _): &(MemoryId, ContentHash)| Problem::DamagedSearchTerms {
        tenant_id: key.tenant_id,
        store_id: key.store_id,
        memory_id: *memory_id,
    };
    Ok(wrong.map(problem).collect())
}

/// Removes the last key of a full batch, because more rows with that key may
/// follow in the next batch.
fn drop_last_key(rows: &mut Vec<NamedBlob>, full: usize) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return;
    };
    let (first, last) = (first.key, last.key);
    if rows.len() >= full && first != last {
        rows.retain(|row| row.key != last);
    }
}
