//! Who was shown a memory or a version, and what the agent of a session was shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use askama::Template;
use keepsake_core::{Actor, SessionId, StoreId, Surface, words};
use keepsake_engine::{ReaderList, ReaderQuery, ShownVersion};
use keepsake_index::{MemoryReader, ReadVersions, Store};

use super::choices::{StoreChoices, actor_in_form};
use super::memory::href_of;
use super::version::{VersionRow, rows_of, version_href};
use super::{OfMemory, OfVersion};
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page};
use crate::path::Path;
use crate::people::People;
use crate::request::{Caller, Pager};
use crate::text::markup::{self, Markup};

const PER_PAGE: u64 = 50;
const MINUTE: Duration = Duration::from_mins(1);

/// The place where a version was shown, in words.
const fn place(surface: Surface) -> &'static str {
    match surface {
        Surface::Tool => "by a tool",
        Surface::Search => "in a search hit",
        Surface::Api => "by the API",
        Surface::Mcp => "by MCP",
        Surface::Console => "in the console",
        Surface::Backup => "in a backup",
        Surface::Person => "to a person",
    }
}

/// The readers of a memory or a version in one line, with a link below its page.
pub(super) async fn seen_by(
    caller: &Caller,
    store_id: StoreId,
    versions: ReadVersions,
    (frame, href): (&Frame, &str),
) -> Result<Markup, Refusal> {
    let counts = caller.engine.readers.counts(&caller.principal, store_id, versions).await?;
    let link = |text: &str| format!("<a href=\"{href}/readers\">{text}</a>");
    let Some(since) = counts.since else {
        let none = link("no reader");
        return Ok(Markup::trusted(format!("{none} is recorded; the last half minute may be missing")));
    };
    let others = if counts.sessions > 0 { "other reader" } else { "reader" };
    let named = [(counts.sessions, "session"), (counts.others, others)];
    let named = named.into_iter().filter(|(number, _)| *number > 0);
    let named: Vec<_> = named.map(|(number, name)| words::counted(number, name)).collect();
    let least = if counts.are_least { "at least " } else { "" };
    let named = link(&format!("{least}{}", named.join(" and ")));
    Ok(Markup::trusted(format!("{named}, first {}", frame.time(since))))
}

/// The session in which another reader was. A session that read by itself is the reader.
fn session_of(reader: &MemoryReader) -> Option<Actor> {
    reader.session_id.map(Actor::Session).filter(|session| reader.actor != *session)
}

/// Whoever wrote what the reader wrote, as the filter of the history names it.
fn author_of(reader: &MemoryReader) -> String {
    let author = reader.session_id.map_or_else(|| reader.actor.clone(), Actor::Session);
    markup::encoded(&actor_in_form(Some(&author)))
}

#[derive(Template)]
#[template(path = "readers.html")]
struct ReadersPage {
    frame: Frame,
    /// `None`: the page is that of a session.
    store: Option<Store>,
    /// `None`: the page is that of a memory or a version.
    session: Option<Actor>,
    /// The address of the page of the memory, version or session, and the word for it in the link.
    back: (String, &'static str),
    is_recorded: bool,
    /// Whether the record has been complete for less than a minute.
    has_just_begun: bool,
    complete_from: Markup,
    /// To the second: later reads of other replicas are not written yet.
    complete_through: String,
    readers: Vec<MemoryReader>,
    /// The versions that were shown, as far as they can still be read.
    versions: Vec<VersionRow>,
    people: People,
    /// The names of the stores on the page of a session.
    stores: StoreChoices,
    pager: Pager,
}

impl ReadersPage {
    /// The link to the version that a reader was shown: its change, or its id if it cannot be read.
    fn version_of(&self, reader: &MemoryReader) -> Markup {
        match self.versions.iter().find(|row| row.id == reader.version_id) {
            Some(row) => row.link(),
            None => markup::id_link(reader.version_id, &version_href(reader.store_id, reader.version_id)),
        }
    }
}

/// The versions of each store that readers were shown, as far as they can still be read.
async fn versions_of(caller: &Caller, readers: &[MemoryReader]) -> BTreeMap<StoreId, Vec<ShownVersion>> {
    let mut shown: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for reader in readers {
        shown.entry(reader.store_id).or_default().insert(reader.version_id);
    }
    let mut found = BTreeMap::new();
    for (store_id, version_ids) in shown {
        let version_ids: Vec<_> = version_ids.into_iter().collect();
        match caller.engine.versions.look_up(&caller.principal, store_id, &version_ids).await {
            Ok(versions) => {
                found.insert(store_id, versions);
            }
            Err(error) => {
                tracing::debug!(error = %error, "console.readers goes without the versions of a store");
            }
        }
    }
    found
}

/// The object of a page of readers.
#[derive(Debug, Clone, Copy)]
enum Place {
    Store(StoreId),
    Session(SessionId),
}

async fn show(
    caller: Caller,
    heading: &'static str,
    at: Place,
    back: (String, &'static str),
    found: ReaderList,
) -> PageResult {
    let (store, session, stores) = match at {
        Place::Store(store_id) => {
            let store = caller.engine.stores.get(&caller.principal, store_id).await?;
            (Some(store), None, StoreChoices::default())
        }
        Place::Session(session_id) => {
            (None, Some(Actor::Session(session_id)), StoreChoices::of(&caller, true).await?)
        }
    };
    let readers = &found.items;
    let sessions = readers.iter().filter_map(|reader| reader.session_id.map(Actor::Session));
    let sessions: Vec<_> = sessions.chain(session.clone()).collect();
    let actors = readers.iter().map(|reader| &reader.actor).chain(&sessions).collect();
    let people = People::look_up(&caller, actors).await;
    let frame = caller.frame(heading);
    let mut versions = Vec::new();
    for (store_id, shown) in versions_of(&caller, readers).await {
        versions.extend(rows_of(&caller, store_id, &shown, &people, &frame).await?);
    }
    page(&ReadersPage {
        store,
        session,
        back,
        is_recorded: found.complete_from.is_some(),
        has_just_begun: found.complete_from.is_some_and(|from| from.plus(MINUTE) > frame.now),
        complete_from: frame.time_or(found.complete_from, "never"),
        complete_through: markup::to_the_second(found.complete_through),
        readers: found.items,
        versions,
        people,
        stores,
        pager: caller.query.pager(found.next),
        frame,
    })
}

pub(super) async fn of_memory(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    let query = ReaderQuery {
        memory_id: Some(memory_id),
        page: caller.query.page(PER_PAGE),
        ..ReaderQuery::default()
    };
    let found = caller.engine.readers.of_store(&caller.principal, store_id, &query).await?;
    let back = (href_of(store_id, memory_id), "memory");
    show(caller, "Who has seen the memory", Place::Store(store_id), back, found).await
}

pub(super) async fn of_version(caller: Caller, Path((store_id, version_id)): OfVersion) -> PageResult {
    let query = ReaderQuery {
        version_id: Some(version_id),
        page: caller.query.page(PER_PAGE),
        ..ReaderQuery::default()
    };
    let found = caller.engine.readers.of_store(&caller.principal, store_id, &query).await?;
    let back = (version_href(store_id, version_id), "version");
    show(caller, "Who has seen the version", Place::Store(store_id), back, found).await
}

pub(super) async fn of_session(caller: Caller, Path(session_id): Path<SessionId>) -> PageResult {
    let page = caller.query.page(PER_PAGE);
    let found = caller.engine.readers.of_session(&caller.principal, session_id, &page).await?;
    let back = (format!("/console/sessions/{session_id}"), "session");
    show(caller, "What the agent was shown", Place::Session(session_id), back, found).await
}
