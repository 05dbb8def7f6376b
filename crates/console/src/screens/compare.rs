//! Two versions beside or below each other.

use askama::Template;
use axum::extract::{Path, State};
use keepsake_core::id::VersionKind;
use keepsake_core::{StoreId, Timestamp, VersionId};
use keepsake_engine::{Engine, PageRequest, ShownVersion, VersionQuery, View};

use super::tree::StoreHead;
use crate::frame::{Frame, Tab};
use crate::page::{PageResult, Refusal, page};
use crate::people::People;
use crate::request::{Caller, InStore, Query};
use crate::text::diff::{Diff, Row};
use crate::text::markup::{Markup, id_link, path, time};

struct Side {
    version: Markup,
    path: Markup,
    by: Markup,
    at: Markup,
    operation: &'static str,
    is_redacted: bool,
    is_lost: bool,
}

impl Side {
    fn of(base: &str, shown: &ShownVersion, people: &People, now: Timestamp) -> Self {
        let (version, full) = (&shown.version, shown.version.version_id.to_string());
        Self {
            version: id_link(&full, &format!("{base}/versions/{full}")),
            path: version.path.as_ref().map_or_else(Markup::default, |at| path(at.as_str())),
            by: people.show(version.created_by.as_ref()),
            at: time(version.created_at, now),
            operation: version.operation.name(),
            is_redacted: version.redacted_at.is_some(),
            is_lost: shown.lost.is_some(),
        }
    }
}

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
    older: Option<Side>,
    newer: Side,
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
pub(super) async fn show(
    State(engine): State<Engine>,
    caller: Caller,
    Path(store_id): InStore,
    Query(fields): Query,
) -> PageResult {
    let (principal, store_id) = (&caller.principal, store_id.0);
    let to = fields.id::<VersionKind>("to")?;
    let to = to.ok_or_else(|| Refusal::Invalid("`to` must name a version".to_owned()))?;
    let store = engine.stores.get(principal, store_id).await?;
    let newer = engine.versions.inspect(principal, store_id, to).await?;
    let from = match fields.id::<VersionKind>("from")? {
        Some(from) => Some(from),
        None => previous(&engine, &caller, store_id, &newer).await?,
    };
    let older = match from {
        Some(from) => Some(engine.versions.inspect(principal, store_id, from).await?),
        None => None,
    };
    let people = People::look_up(&engine, &caller).await;
    let (head, now) = (StoreHead::of(&store), engine.now());
    let text = |shown: Option<&ShownVersion>| shown.and_then(|shown| shown.content.clone());
    let (old, new) = (text(older.as_ref()), text(Some(&newer)));
    let diff = Diff::computed(&engine, &caller, old.unwrap_or_default(), new.unwrap_or_default()).await?;
    let is_split = fields.text("view") == "split";
    let href = |view: &str| {
        let from = from.map(|from| format!("from={from}&")).unwrap_or_default();
        format!("{}/compare?{from}to={to}&view={view}", head.base)
    };
    page(&ComparePage {
        frame: caller.frame("Compare versions", Tab::Stores),
        older: older.as_ref().map(|shown| Side::of(&head.base, shown, &people, now)),
        newer: Side::of(&head.base, &newer, &people, now),
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
    engine: &Engine,
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
    let found = engine.versions.list(&caller.principal, store_id, &query, View::Basic).await?;
    let older = found.items.iter().find(|shown| shown.version.seq < newer.version.seq);
    Ok(older.map(|shown| shown.version.version_id))
}
