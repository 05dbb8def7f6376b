//! Two versions beside or below each other.

use askama::Template;
use axum::extract::Path;
use keepsake_core::id::VersionKind;
use keepsake_core::{StoreId, VersionId};
use keepsake_engine::{PageRequest, ShownVersion, VersionQuery, View};

use super::tree::StoreHead;
use super::version::VersionRow;
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, Refusal, page};
use crate::people::People;
use crate::request::{Caller, InStore};
use crate::text::diff::{Diff, Row};

/// A passage as the chosen view shows it.
struct Passage {
    heading: String,
    rows: Vec<Row>,
}

#[derive(Template)]
#[template(path = "compare.html")]
struct ComparePage {
    frame: Frame,
    store: StoreHead,
    older: Option<VersionRow>,
    newer: VersionRow,
    passages: Vec<Passage>,
    added: usize,
    removed: usize,
    is_cut: bool,
    is_split: bool,
    inline_href: String,
    split_href: String,
    swap_href: Option<String>,
    history_href: String,
}

/// `GET /console/stores/{id}/compare?from=&to=&view=`
pub(super) async fn show(caller: Caller, Path(store_id): InStore) -> PageResult {
    let (principal, store_id) = (&caller.principal, store_id.0);
    let to = caller.query.id::<VersionKind>("to")?;
    let to = to.ok_or_else(|| Refusal::Invalid("`to` must name a version".to_owned()))?;
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
    let people = People::look_up(&caller).await;
    let (head, now) = (StoreHead::of(&store), caller.engine.now());
    let text = |shown: Option<&ShownVersion>| shown.and_then(|shown| shown.content.clone());
    let (old, new) = (text(older.as_ref()), text(Some(&newer)));
    let diff = Diff::computed(&caller, old.unwrap_or_default(), new.unwrap_or_default()).await?;
    let is_split = caller.query.text("view") == "split";
    let href = |view: &str| {
        let from = from.map(|from| format!("from={from}&")).unwrap_or_default();
        format!("{}/compare?{from}to={to}&view={view}", head.base)
    };
    page(&ComparePage {
        frame: caller.frame("Compare versions", Tab::Stores),
        older: older.as_ref().map(|shown| VersionRow::of(&head.base, shown, &people, now)),
        newer: VersionRow::of(&head.base, &newer, &people, now),
        added: diff.added,
        removed: diff.removed,
        is_cut: diff.is_cut,
        passages: passages(diff, is_split),
        is_split,
        inline_href: href("inline"),
        split_href: href("split"),
        swap_href: from.map(|from| format!("{}/compare?from={to}&to={from}", head.base)),
        history_href: format!("{}/memories/{}/history", head.base, newer.version.memory_id),
        store: head,
    })
}

fn passages(diff: Diff, is_split: bool) -> Vec<Passage> {
    let shown = diff.hunks.into_iter().map(|hunk| Passage {
        rows: if is_split { hunk.rows.clone() } else { hunk.inline() },
        heading: hunk.heading,
    });
    shown.collect()
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
        page: PageRequest { limit: Some(20), page: None },
        ..VersionQuery::default()
    };
    let found = caller.engine.versions.list(&caller.principal, store_id, &query, View::Basic).await?;
    let older = found.items.iter().find(|shown| shown.version.seq < newer.version.seq);
    Ok(older.map(|shown| shown.version.version_id))
}
