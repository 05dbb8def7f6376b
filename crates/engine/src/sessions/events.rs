//! The events of a session: which tools were called, without contents.

use std::sync::Arc;

use keepsake_core::tool::ToolPath;
use keepsake_core::{EventId, MemoryPath, SessionId, StoreId, TenantId};
use keepsake_index::{EventFilter, EventListing, EventPlace, SessionEvent};
use serde_json::{Map, Value, json};

use super::Sessions;
use super::follow::{self, SessionWatch};
use crate::context::Context;
use crate::cursor::Query;
use crate::shared::service;
use crate::{EngineError, Mounts, Page, PageRequest, Principal};

/// Input fields that contain paths.
const PATHS: [&str; 4] = ["path", "old_path", "path_prefix", "new_path"];
/// Input fields whose contents are omitted; only their sizes are recorded.
const CONTENTS: [&str; 10] = [
    "content",
    "edits",
    "expected_content_sha256",
    "file_text",
    "insert_text",
    "new_str",
    "old_str",
    "page",
    "precondition",
    "query",
];
/// The recorded name of a call to an unknown tool.
const UNNAMED: &str = "unknown";
/// Input fields that are recorded unchanged: a few words and numbers.
const KEPT: [&str; 6] = ["command", "view_range", "insert_line", "depth", "offset", "limit"];
/// Events that are not yet written and are selected by the thread of the request.
const FEW_EVENTS: usize = 256;
/// Maximum number of characters of a recorded text.
const KEPT_CHARS: usize = 64;

service! {
    pub SessionEvents(shared) {
        pub(super) sessions: Sessions = Sessions::new(shared),
        pub(super) watch: Arc<SessionWatch> = Arc::new(follow::watch(shared)),
    }
}

impl SessionEvents {
    /// Lists the events of a session by time. Events of the last 30 seconds
    /// that other replicas served are missing.
    #[tracing::instrument(name = "engine.session_events", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        session_id: SessionId,
        filter: &EventFilter,
        page: &PageRequest,
    ) -> Result<Page<SessionEvent>, EngineError> {
        self.sessions.get(principal, session_id).await?;
        let limit = page.session_limit()?;
        let tenant_id = principal.tenant_id;
        let identity = Query::filtered("session_events", tenant_id, &(session_id, filter))?;
        let cursors = &self.context.cursors;
        let after = cursors.after(identity, page).await?;
        let listing = EventListing {
            filter: filter.clone(),
            // By the granted stores, since an attached store may have been detached
            // since.
            only: principal.granted_store_ids().map(<[StoreId]>::to_vec),
            after,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        // Read before the rows, so that an event written meanwhile is found
        // twice rather than not at all. Duplicates are removed below.
        let noted = self.activity.noted(tenant_id, session_id);
        let index = &self.context.index;
        let mut items = index.sessions.list_events(tenant_id, session_id, &listing).await?;
        items.extend(self.first_of(tenant_id, noted, listing).await?);
        items.sort_by_key(|event| (event.at, event.event_id));
        items.dedup_by_key(|event| event.event_id);
        if filter.newest_first {
            items.reverse();
        }
        cursors.page(identity, items, limit, |event| (event.at, event.event_id)).await
    }

    /// The first of these events that a listing asks for, as many as it has at most.
    async fn first_of(
        &self,
        tenant_id: TenantId,
        events: Vec<Arc<SessionEvent>>,
        listing: EventListing,
    ) -> Result<Vec<SessionEvent>, EngineError> {
        let is_short = events.len() <= FEW_EVENTS;
        let select = move || {
            let mut asked: Vec<_> = events.into_iter().filter(|event| listing.asks_for(event)).collect();
            asked.sort_by_key(|event| (event.at, event.event_id));
            if listing.filter.newest_first {
                asked.reverse();
            }
            let first = asked.iter().take(listing.limit as usize);
            first.map(|event| SessionEvent::clone(event)).collect::<Vec<_>>()
        };
        if is_short { Ok(select()) } else { self.context.computations.run(tenant_id, select).await }
    }
}

/// The event of a tool's call that has no error yet; `None`: the call belongs to no session.
pub(crate) fn event_of_call(
    context: &Context,
    principal: &Principal,
    mounts: &Mounts,
    name: &str,
    input: &Map<String, Value>,
) -> Option<SessionEvent> {
    let session_id = mounts.session_id().or_else(|| principal.session_id())?;
    let at = context.now();
    let (input, place) = describe(mounts, input);
    Some(SessionEvent {
        tenant_id: principal.tenant_id,
        session_id,
        // A follower continues from the time in the id of its last event.
        event_id: EventId::from_uuid(context.ids.uuid_at(at)),
        at,
        name: if is_name(name) { name } else { UNNAMED }.to_owned(),
        input,
        place,
        is_error: false,
    })
}

/// Describes an input without contents, with the store and path that the input refers to.
///
/// A path that cannot be resolved is omitted like content, because an erasure could not
/// match it to a store.
fn describe(mounts: &Mounts, input: &Map<String, Value>) -> (Map<String, Value>, Option<EventPlace>) {
    let parsed = PATHS.map(|name| {
        let text = input.get(name)?.as_str()?;
        ToolPath::parse_in(text, mounts.root()).ok()
    });
    let place = place_of(mounts, parsed.iter().flatten());
    // Unknown fields are omitted, because their number is unlimited.
    let is_known = |name: &str| [&PATHS[..], &CONTENTS, &KEPT].iter().any(|names| names.contains(&name));
    let known = input.iter().filter(|(name, _)| is_known(name));
    let kept = known.map(|(name, value)| {
        let is_led = PATHS.iter().zip(&parsed).any(|(path, parsed)| {
            path == name && parsed.as_ref().is_some_and(|path| place.is_some() || path.is_mounts())
        });
        let shown = if is_led || (KEPT.contains(&name.as_str()) && is_small(value)) {
            value.clone()
        } else {
            size_of(value)
        };
        (name.clone(), shown)
    });
    (kept.collect(), place)
}

/// The store that contains all paths, with the paths in it.
fn place_of<'a>(mounts: &Mounts, paths: impl Iterator<Item = &'a ToolPath>) -> Option<EventPlace> {
    let mut place: Option<EventPlace> = None;
    for path in paths {
        let store_id = mounts.store_of(path)?.store_id;
        let text = path.memory().map_or("", MemoryPath::as_str).to_owned();
        match &mut place {
            None => {
                place = Some(EventPlace { store_id, path: text, new_path: None });
            }
            Some(place) if place.store_id == store_id => place.new_path = Some(text),
            // The paths are in two stores: the call is refused, and neither store's
            // erasure would find the event.
            Some(_) => return None,
        }
    }
    place
}

/// Whether the text is a possible name of a tool or command and not content.
fn is_name(name: &str) -> bool {
    (1..=KEPT_CHARS).contains(&name.len())
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

fn is_small(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => is_name(text),
        Value::Array(items) => items.len() <= 2 && items.iter().all(Value::is_number),
        Value::Object(_) => false,
    }
}

/// Replaces a content by its number of bytes.
fn size_of(value: &Value) -> Value {
    let bytes = match value {
        Value::Null | Value::Bool(_) => return value.clone(),
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    };
    json!({"size_bytes": bytes})
}
