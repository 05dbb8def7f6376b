//! Pages of a store's memories. On SQLite, first pages are cached until they change.

use keepsake_core::{StoreId, TenantId};
use sqlx::SqlSafeStr;

use super::{Memories, postgres, sqlite};
use crate::IndexError;
use crate::database::{FromRow, Role, Row};
use crate::listing::Span;
use crate::model::{Depth, Expiry, MemoryItem, MemoryListing, MemoryPage, StoreKey, StoreState};

/// An item of a list, if the row has one. One row has the store: on Postgres the first,
/// on SQLite one without an item.
struct ItemRow {
    store: Option<StoreState>,
    expiry: Expiry,
    item: Option<MemoryItem>,
}

impl FromRow for ItemRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let item = match row.read_unless_null("memory_id")? {
            Some(memory) => {
                let first_line: Option<String> = row.get("first_line")?;
                Some(MemoryItem::Memory((Box::new(memory), first_line.unwrap_or_default())))
            }
            None => row.get::<Option<_>>("path")?.map(MemoryItem::Prefix),
        };
        Ok(Self { store: row.read_unless_null("purge_epoch")?, expiry: row.read()?, item })
    }
}

impl Memories {
    /// Lists memories in byte order of their paths; `None`: no such store.
    ///
    /// Reads about as many rows as it returns, however many memories are below the
    /// directory.
    pub async fn list(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &MemoryListing,
    ) -> Result<Option<MemoryPage>, IndexError> {
        // A reader of a whole store needs each later page once; caching these would
        // displace other answers.
        let Some(index) = self.database.sqlite().filter(|_| listing.after.is_none()) else {
            return self.read_page(tenant_id, store_id, listing).await;
        };
        let (known, store) = (index.known(), StoreKey { tenant_id, store_id });
        if let Some(page) = known.page(store, listing) {
            return Ok(Some(page));
        }
        let moment = known.moment();
        let page = self.read_page(tenant_id, store_id, listing).await?;
        if let Some(page) = &page {
            known.keep_page(moment, store, listing, page);
        }
        Ok(page)
    }

    async fn read_page(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &MemoryListing,
    ) -> Result<Option<MemoryPage>, IndexError> {
        let span = Span::of(listing);
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read_one("list_memories", role).await?;
        let packing = sqlite::page(listing.depth);
        let text = tx.choose([postgres::MEMORIES.into_sql_str(), packing.text()]);
        let after_name = span.as_ref().map(|span| span.after_name);
        let rows: Vec<ItemRow> = tx
            .query(text)
            .bind(tenant_id)
            .bind(store_id)
            .bind(listing.below.as_str())
            .bind(span.as_ref().map(|span| span.from))
            .bind(span.as_ref().map(|span| span.end.as_str()))
            .bind(after_name.filter(|_| listing.depth == Depth::Children))
            .bind(listing.limit)
            .all_packed(packing)
            .await?;
        let Some((store, expiry)) = rows.iter().find_map(|row| Some((row.store?, row.expiry))) else {
            return Ok(None);
        };
        let mut items: Vec<_> = rows.into_iter().filter_map(|row| row.item).collect();
        // On SQLite, memories and directories are two lists, each up to the limit.
        items.sort_by(|one, other| one.path().cmp(other.path()));
        items.truncate(listing.limit as usize);
        Ok(Some(MemoryPage { store, expiry, items }))
    }
}
