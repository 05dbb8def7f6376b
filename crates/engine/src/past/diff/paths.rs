//! Compares the memories of two stores by their paths.

use std::collections::VecDeque;

use keepsake_core::{DirPath, MemoryPath, StoreId, TenantId};
use keepsake_index::{Depth, Moment, PastItem, PastListing, PastMemory, PastPlace};

use super::super::refusal;
use super::{Comparison, Difference};
use crate::EngineError;
use crate::context::Context;
use crate::work::charge;

/// Memories of one statement.
const PAGE: u32 = 1_000;
/// Memory of the memories that were read and not compared yet.
const PAGES_BYTES: usize = 2 * PAGE as usize * 1_024;

/// Reads both stores in the order of their paths.
pub(super) struct PathComparison<'a> {
    sides: [PathReader<'a>; 2],
}

impl<'a> PathComparison<'a> {
    /// `after` is the key of the last difference before.
    pub(super) fn new(
        context: &'a Context,
        comparison: Comparison,
        after: Option<&str>,
        fields: [&'static str; 2],
    ) -> Self {
        // A path has one difference, so the next one is at another path.
        let path = after.map(|key| key.split('\0').next().unwrap_or(key));
        let reader = |side: usize| PathReader {
            context,
            tenant_id: comparison.tenant_id,
            store_id: comparison.stores[side],
            seq: comparison.points[side].seq,
            field: fields[side],
            after: path.map(|path| PastPlace::Path(path.to_owned())),
            read: VecDeque::new(),
            is_end: false,
        };
        Self { sides: [reader(0), reader(1)] }
    }

    pub(super) async fn next(mut self, limit: usize) -> Result<Vec<Difference>, EngineError> {
        charge(PAGES_BYTES)?;
        let mut found = Vec::new();
        while found.len() < limit {
            let [first, second] = &mut self.sides;
            let paths = [first.path().await?, second.path().await?];
            let [takes_first, takes_second] = match &paths {
                [None, None] => break,
                [Some(_), None] => [true, false],
                [None, Some(_)] => [false, true],
                [Some(one), Some(other)] => [one <= other, other <= one],
            };
            let from = takes_first.then(|| first.take()).flatten();
            let to = takes_second.then(|| second.take()).flatten();
            found.extend(Difference::of(from, to));
        }
        Ok(found)
    }
}

/// The memories of one store, read page by page.
struct PathReader<'a> {
    context: &'a Context,
    tenant_id: TenantId,
    store_id: StoreId,
    seq: i64,
    field: &'static str,
    after: Option<PastPlace>,
    read: VecDeque<PastMemory>,
    is_end: bool,
}

impl PathReader<'_> {
    /// The path of the next memory. Memories whose version is redacted have none, and come last.
    async fn path(&mut self) -> Result<Option<MemoryPath>, EngineError> {
        if self.read.is_empty() && !self.is_end {
            let after = self.after.take();
            let listing = PastListing { below: DirPath::root(), depth: Depth::All, after, limit: PAGE };
            let past = &self.context.index.past;
            let page = past.list(self.tenant_id, self.store_id, Moment::Seq(self.seq), &listing).await;
            let page = page.map_err(refusal(self.field))?;
            self.is_end = page.next.is_none();
            self.after = page.next;
            self.read.extend(page.items.into_iter().filter_map(|item| match item {
                PastItem::Memory(memory) => Some(memory),
                PastItem::Prefix(_) => None,
            }));
        }
        Ok(self.read.front().and_then(|memory| memory.path.clone()))
    }

    fn take(&mut self) -> Option<PastMemory> {
        self.read.pop_front()
    }
}
