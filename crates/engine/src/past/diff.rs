//! The differences between two points of a store, or between two stores.
//!
//! Between two points of one store, memories are compared by their ids, and only those with
//! versions between the points are read. Two stores have different ids, so their memories are
//! compared by path.

mod paths;

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::schemas::MemoryDifferenceType;
use keepsake_core::{BlobKey, ContentHash, MemoryId, MemoryPath, StoreId, TenantId, VersionId};
use keepsake_index::{Moment, PastMemory, Point};
use serde::Serialize;
use utoipa::ToSchema;

use super::{NamedMoment, Past, refusal};
use crate::content::ContentLoss;
use crate::cursor::{Place, Query};
use crate::memories::fitting_contents;
use crate::work::charge;
use crate::{EngineError, LineDiff, Page, PageRequest, Principal};

use paths::PathComparison;

/// Memories that are read at once.
const BATCH: u32 = 1_000;
/// Memory of a difference, besides its paths.
const DIFFERENCE_BYTES: usize = 464;
/// The lines of larger contents are not counted.
const MAX_COUNTED_BYTES: u64 = 1 << 20;
/// A page ends after comparisons with this product of the numbers of lines.
const MAX_PAGE_WORK: usize = 8_000_000;

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DifferenceKind {
        Added = "added",
        Removed = "removed",
        Changed = "changed",
        Renamed = "renamed",
    }
}

keepsake_core::shown_by_name! {
    DifferenceKind as "MemoryDifferenceKind" =>
        "What differs at a path. A renamed memory may have another content, too.";
}

/// A difference between two states of memories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemoryDifference {
    #[schema(inline)]
    pub r#type: MemoryDifferenceType,
    pub change: DifferenceKind,
    /// The path in the later state or, of a removed memory, in the earlier one; null if the
    /// version is redacted.
    #[schema(required)]
    pub path: Option<MemoryPath>,
    /// The path in the earlier state of a renamed memory; null for other changes.
    #[schema(required)]
    pub previous_path: Option<MemoryPath>,
    /// Null if there was no memory.
    #[schema(required)]
    pub from_memory_id: Option<MemoryId>,
    #[schema(required)]
    pub from_memory_version_id: Option<VersionId>,
    /// Null also if the version is redacted.
    #[schema(required)]
    pub from_content_sha256: Option<ContentHash>,
    /// Null if there is no memory.
    #[schema(required)]
    pub to_memory_id: Option<MemoryId>,
    #[schema(required)]
    pub to_memory_version_id: Option<VersionId>,
    /// Null also if the version is redacted.
    #[schema(required)]
    pub to_content_sha256: Option<ContentHash>,
    /// Null if a content is redacted, lost, or larger than 1 MiB.
    #[schema(required)]
    pub added_lines: Option<u64>,
    /// Null in the same cases.
    #[schema(required)]
    pub removed_lines: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct DiffQuery {
    /// The earlier point, or that of the first store; by default the oldest one that can be shown
    /// or, if there is another store, the newest one.
    pub from: Option<NamedMoment>,
    /// The later point, or that of the other store; by default the newest one.
    pub to: Option<NamedMoment>,
    /// The store to compare with.
    pub other_store_id: Option<StoreId>,
    pub page: PageRequest,
}

fn sha256_of(memory: &PastMemory) -> Option<ContentHash> {
    memory.content.map(|content| content.sha256)
}

/// Whether path and content are known to be the same.
fn are_same(from: &PastMemory, to: &PastMemory) -> bool {
    from.path.is_some() && from.path == to.path && from.content.is_some() && sha256_of(from) == sha256_of(to)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Difference {
    Added(PastMemory),
    Removed(PastMemory),
    /// Another path, another content, or another memory at the same path.
    Changed {
        from: PastMemory,
        to: PastMemory,
    },
}

impl Difference {
    fn of(from: Option<PastMemory>, to: Option<PastMemory>) -> Option<Self> {
        match (from, to) {
            (None, None) => None,
            (None, Some(to)) => Some(Self::Added(to)),
            (Some(from), None) => Some(Self::Removed(from)),
            (Some(from), Some(to)) => (!are_same(&from, &to)).then_some(Self::Changed { from, to }),
        }
    }

    const fn sides(&self) -> [Option<&PastMemory>; 2] {
        match self {
            Self::Added(to) => [None, Some(to)],
            Self::Removed(from) => [Some(from), None],
            Self::Changed { from, to } => [Some(from), Some(to)],
        }
    }

    fn shown_side(&self) -> &PastMemory {
        match self {
            Self::Added(side) | Self::Removed(side) | Self::Changed { to: side, .. } => side,
        }
    }

    fn kind(&self) -> DifferenceKind {
        match self {
            Self::Added(_) => DifferenceKind::Added,
            Self::Removed(_) => DifferenceKind::Removed,
            // The path of a redacted version is not known.
            Self::Changed { from, to }
                if from.path != to.path && from.path.is_some() && to.path.is_some() =>
            {
                DifferenceKind::Renamed
            }
            Self::Changed { .. } => DifferenceKind::Changed,
        }
    }

    /// The place in the order by path. Differences without a path come last. A path may have two:
    /// a removed memory, and another one that was renamed to the path.
    fn key(&self) -> String {
        let side = self.shown_side();
        match &side.path {
            Some(path) => format!("{}\0{}", path.as_str(), u8::from(!matches!(self, Self::Removed(_)))),
            None => format!("0{}", side.memory_id),
        }
    }

    /// The memory that it takes.
    fn bytes(&self) -> usize {
        let paths = self.sides().into_iter().flatten().filter_map(|side| side.path.as_ref());
        DIFFERENCE_BYTES + paths.map(|path| path.as_str().len()).sum::<usize>()
    }

    /// Whether the lines of its contents can be counted.
    fn is_countable(&self) -> bool {
        let mut sides = self.sides().into_iter().flatten();
        sides.all(|side| side.content.is_some_and(|content| content.size_bytes <= MAX_COUNTED_BYTES))
    }

    fn has_same_content(&self) -> bool {
        matches!(self, Self::Changed { from, to } if sha256_of(from) == sha256_of(to))
    }

    fn compared_bytes(&self) -> u64 {
        if !self.is_countable() || self.has_same_content() {
            return 0;
        }
        let contents = self.sides().into_iter().flatten().filter_map(|side| side.content);
        contents.map(|content| content.size_bytes).sum()
    }

    fn shown(self, counts: Option<LineCounts>) -> MemoryDifference {
        let change = self.kind();
        let [from, to] = self.sides();
        MemoryDifference {
            r#type: MemoryDifferenceType,
            change,
            path: self.shown_side().path.clone(),
            previous_path: match change {
                DifferenceKind::Renamed => from.and_then(|side| side.path.clone()),
                DifferenceKind::Added | DifferenceKind::Removed | DifferenceKind::Changed => None,
            },
            from_memory_id: from.map(|side| side.memory_id),
            from_memory_version_id: from.map(|side| side.version_id),
            from_content_sha256: from.and_then(sha256_of),
            to_memory_id: to.map(|side| side.memory_id),
            to_memory_version_id: to.map(|side| side.version_id),
            to_content_sha256: to.and_then(sha256_of),
            added_lines: counts.map(|counts| counts.added as u64),
            removed_lines: counts.map(|counts| counts.removed as u64),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct LineCounts {
    added: usize,
    removed: usize,
    work: usize,
}

impl LineCounts {
    fn of(old: &str, new: &str) -> Self {
        let diff = LineDiff::of(old, new, 0);
        Self { added: diff.added, removed: diff.removed, work: diff.work }
    }
}

/// The two states of a comparison.
#[derive(Debug, Clone, Copy)]
struct Comparison {
    tenant_id: TenantId,
    stores: [StoreId; 2],
    points: [Point; 2],
}

impl Past {
    /// Lists the differences between two points of a store, or between two stores, by path.
    ///
    /// A page may be shorter than its limit although others follow: it has up to 1 MiB of
    /// compared contents, and its comparisons are bounded.
    #[tracing::instrument(name = "engine.differences", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn diff(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &DiffQuery,
    ) -> Result<Page<MemoryDifference>, EngineError> {
        let first = if query.other_store_id.is_some() { Moment::Newest } else { Moment::Oldest };
        let from = query.from.unwrap_or(NamedMoment::default_of("from", first));
        let to = query.to.unwrap_or(NamedMoment::default_of("to", Moment::Newest));
        let moments = [self.allow(principal, store_id, from)?, to.checked(self.context.now())?];
        if let Some(other) = query.other_store_id {
            principal.require_store(other)?;
        }
        let tenant_id = principal.tenant_id;
        let limit = query.page.limit(false)?;
        let stores = [store_id, query.other_store_id.unwrap_or(store_id)];
        let identity = Query::filtered("differences", tenant_id, &(stores, from.key(), to.key()))?;
        let after: Option<DiffPosition> = self.context.cursors.after(identity, &query.page).await?;
        let moments = after.as_ref().map_or(moments, |after| after.seqs.map(Moment::Seq));
        let _slot = self.pages.take(tenant_id).await?;
        let past = &self.context.index.past;
        let first = past.point(tenant_id, stores[0], moments[0]).await.map_err(refusal(from.field))?;
        let second = past.point(tenant_id, stores[1], moments[1]).await.map_err(refusal(to.field))?;
        let comparison = Comparison { tenant_id, stores, points: [first, second] };
        let key = after.map(|after| after.key);
        let mut found = if query.other_store_id.is_some() {
            PathComparison::new(&self.context, comparison, key.as_deref(), [from.field, to.field])
                .next(limit as usize + 1)
                .await?
        } else {
            if first.seq > second.seq {
                let (field, rule) = match query.from {
                    Some(_) => (from.field, format!("must not be a later point than `{}`", to.field)),
                    None => (to.field, "must not be before the oldest point that can be shown".to_owned()),
                };
                return Err(EngineError::invalid(field, rule));
            }
            self.changed(comparison, [from.field, to.field], key, limit as usize + 1).await?
        };
        let mut fitting = fitting_contents(found.iter().map(Difference::compared_bytes));
        fitting = fitting.min(limit as usize);
        let has_more = found.len() > fitting;
        found.truncate(fitting);
        let mut page = Page { items: Vec::new(), next: None };
        let (mut work, mut last) = (0, None);
        let mut rest = found.into_iter();
        for difference in rest.by_ref() {
            let counts = self.count_lines(comparison, &difference).await?;
            work += counts.map_or(0, |counts| counts.work);
            last = Some(difference.key());
            page.items.push(difference.shown(counts));
            if work > MAX_PAGE_WORK {
                break;
            }
        }
        if let Some(key) = last.filter(|_| has_more || rest.len() > 0) {
            let position = DiffPosition { seqs: [first.seq, second.seq], key };
            page.next = Some(self.context.cursors.seal(identity, &position).await?);
        }
        Ok(page)
    }

    /// The next differences between two points of a store.
    async fn changed(
        &self,
        comparison: Comparison,
        fields: [&'static str; 2],
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<Difference>, EngineError> {
        let Comparison { tenant_id, stores: [store_id, _], points: [from, to] } = comparison;
        let (mut found, mut next) = (Vec::new(), None);
        loop {
            let range = (Some(from.seq), Moment::Seq(to.seq));
            let batch = self.context.index.past.changes(tenant_id, store_id, range, next, BATCH).await;
            let batch = batch.map_err(refusal(fields[0]))?;
            let before = found.len();
            let changes = batch.items.into_iter();
            found.extend(changes.filter_map(|[before, after]| Difference::of(before, after)));
            charge(found[before..].iter().map(Difference::bytes).sum())?;
            next = batch.next;
            if next.is_none() {
                break;
            }
        }
        let page = move || page_of(found, after.as_deref(), limit);
        self.context.computations.run(tenant_id, page).await
    }

    /// `None`: a content is redacted, lost or too large.
    async fn count_lines(
        &self,
        comparison: Comparison,
        difference: &Difference,
    ) -> Result<Option<LineCounts>, EngineError> {
        if !difference.is_countable() {
            return Ok(None);
        }
        if difference.has_same_content() {
            return Ok(Some(LineCounts::default()));
        }
        let [from, to] = difference.sides();
        let mut texts = [Arc::from(""), Arc::from("")];
        for (place, side) in [from, to].into_iter().enumerate() {
            if let Some(side) = side {
                let Some(text) = self.side_content(comparison, place, side).await? else {
                    return Ok(None);
                };
                texts[place] = text;
            }
        }
        let [old, new] = texts;
        let count = move || LineCounts::of(&old, &new);
        self.context.computations.run(comparison.tenant_id, count).await.map(Some)
    }

    async fn side_content(
        &self,
        comparison: Comparison,
        place: usize,
        side: &PastMemory,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let Some(recorded) = side.content else {
            return Ok(None);
        };
        let (store_id, point) = (comparison.stores[place], comparison.points[place]);
        let key = BlobKey { tenant_id: comparison.tenant_id, store_id, blob_id: recorded.blob_id };
        ContentLoss::or_none(self.contents.at(key, point.store.purge_epoch, recorded).await)
    }
}

/// Of all differences of memories, the first ones after a place in the order by path. A memory
/// that was removed and another one that was added at its path are one difference.
fn page_of(found: Vec<Difference>, after: Option<&str>, limit: usize) -> Vec<Difference> {
    let mut removed = HashMap::new();
    for (place, difference) in found.iter().enumerate() {
        if let Difference::Removed(PastMemory { path: Some(path), .. }) = difference {
            removed.insert(path.clone(), place);
        }
    }
    let mut replaced = Vec::new();
    for place in 0..found.len() {
        if let Difference::Added(to) = &found[place]
            && let Some(earlier) = to.path.as_ref().and_then(|path| removed.get(path))
            && let Difference::Removed(from) = &found[*earlier]
        {
            replaced.push((place, *earlier, Difference::of(Some(from.clone()), Some(to.clone()))));
        }
    }
    let mut found: Vec<_> = found.into_iter().map(Some).collect();
    for (place, earlier, difference) in replaced {
        found[earlier] = None;
        found[place] = difference;
    }
    let keyed = found.into_iter().flatten().map(|difference| (difference.key(), difference));
    let is_next = |(key, _): &(String, Difference)| after.is_none_or(|after| key.as_str() > after);
    let mut keyed: Vec<_> = keyed.filter(is_next).collect();
    keyed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    keyed.truncate(limit);
    keyed.into_iter().map(|(_, difference)| difference).collect()
}

/// A place in a list of differences, with the points that it compares.
#[derive(Debug, Clone)]
struct DiffPosition {
    seqs: [i64; 2],
    key: String,
}

impl Place for DiffPosition {
    fn encode(&self) -> Vec<u8> {
        let [from, to] = self.seqs.map(|seq| seq.encode());
        [from, to, self.key.encode()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (from, rest) = bytes.split_at_checked(8)?;
        let (to, key) = rest.split_at_checked(8)?;
        Some(Self { seqs: [i64::decode(from)?, i64::decode(to)?], key: String::decode(key)? })
    }
}
