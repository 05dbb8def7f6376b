//! Two versions beside or below each other.

use askama::Template;
use keepsake_core::id::VersionKind;
use keepsake_core::{StoreId, VersionId, words};
use keepsake_engine::{ShownVersion, VersionQuery};
use keepsake_index::Store;

use super::version::{VersionRow, newest_versions};
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page};
use crate::path::Path;
use crate::people::{People, authors};
use crate::request::Caller;
use crate::text::diff::{Diff, Hunk};

#[derive(Template)]
#[template(path = "compare.html")]
struct ComparePage {
    frame: Frame,
    store: Store,
    older: Option<VersionRow>,
    newer: VersionRow,
    passages: Vec<Hunk>,
    added: String,
    removed: String,
    is_cut: bool,
    is_split: bool,
    inline_href: String,
    split_href: String,
    swap_href: Option<String>,
}

pub(super) async fn show(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let principal = &caller.principal;
    let to = caller.query.id::<VersionKind>("to")?;
    let to = to.ok_or_else(|| Refusal::invalid("`to` must name a version"))?;
    let store = caller.engine.stores.get(principal, store_id).await?;
    let newer = caller.engine.versions.inspect(principal, store_id, to).await?;
    let from = match caller.query.id::<VersionKind>("from")? {
        Some(from) => Some(from),
        None => previous(&caller, store_id, &newer).await?,
    };
    let older = match from {
        Some(from) => Some(caller.engine.versions.inspect(principal, store_id, from).await?),
        None => None,
    };
    let people = People::look_up(&caller, authors(older.iter().chain([&newer]))).await;
    let text = |shown: Option<&ShownVersion>| shown.and_then(|shown| shown.content.clone());
    let (old, new) = (text(older.as_ref()), text(Some(&newer)));
    let diff = Diff::computed(&caller, old.unwrap_or_default(), new.unwrap_or_default()).await?;
    let is_split = caller.query.text("view") == "split";
    let href = |view: &str| {
        let from = from.map(|from| format!("from={from}&")).unwrap_or_default();
        format!("/console/stores/{store_id}/compare?{from}to={to}&view={view}")
    };
    // The older one may be any version.
    let before = older.as_ref().map(|older| &older.version);
    let before = before
        .filter(|before| newer.version.prev_seq == Some(before.seq) && newer.version.has_moved_from(before));
    let frame = caller.frame("Compare versions");
    page(&ComparePage {
        older: older.as_ref().map(|shown| VersionRow::of(shown, &people, &frame)),
        newer: VersionRow::after(before, &newer, &people, &frame),
        frame,
        added: words::count(diff.added as u64),
        removed: words::count(diff.removed as u64),
        is_cut: diff.is_cut,
        passages: if is_split { diff.hunks } else { diff.hunks.into_iter().map(Hunk::inlined).collect() },
        is_split,
        inline_href: href("inline"),
        split_href: href("split"),
        swap_href: from.map(|from| format!("/console/stores/{store_id}/compare?from={to}&to={from}")),
        store,
    })
}

/// The version of the memory before another version. `None`: there is none.
async fn previous(
    caller: &Caller,
    store_id: StoreId,
    newer: &ShownVersion,
) -> Result<Option<VersionId>, Refusal> {
    let query = VersionQuery {
        memory_id: Some(newer.version.memory_id),
        created_to: Some(newer.version.created_at),
        ..VersionQuery::default()
    };
    let found = newest_versions(caller, store_id, 20, query).await?;
    let older = found.iter().find(|shown| shown.version.seq < newer.version.seq);
    Ok(older.map(|shown| shown.version.version_id))
}
