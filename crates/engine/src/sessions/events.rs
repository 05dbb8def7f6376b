//! The events of a session: which tools were called, without what was written.

use keepsake_core::tool::ToolPath;
use keepsake_core::{EventId, MemoryPath, SessionId, StoreId, Timestamp};
use keepsake_index::{EventListing, EventPlace, SessionEvent};
use serde_json::{Map, Value, json};

use super::{position, position_of};
use crate::cursor::Query;
use crate::{Engine, EngineError, Mounts, Page, PageRequest, Principal};

/// Fields of an input whose texts are paths.
const PATHS: [&str; 4] = ["path", "old_path", "path_prefix", "new_path"];
/// Fields whose contents are left out: only their sizes are told.
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
/// What a tool is called whose name no tool has.
const UNNAMED: &str = "unknown";
/// Fields of an input that are kept as they are: a few words and numbers.
const KEPT: [&str; 6] = ["command", "view_range", "insert_line", "depth", "offset", "limit"];
/// Characters of a text that is kept, at most.
const KEPT_CHARS: usize = 64;

/// What is asked of a session's events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// At or after this time.
    pub from: Option<Timestamp>,
    /// At or before this time.
    pub to: Option<Timestamp>,
    /// Whether the last is listed first.
    pub newest_first: bool,
    /// Which part.
    pub page: PageRequest,
}

impl Engine {
    /// The event that a call of a tool becomes; `None`: it is in no session.
    pub(crate) fn event_of_call(
        &self,
        principal: &Principal,
        mounts: &Mounts,
        name: &str,
        input: &Map<String, Value>,
    ) -> Option<SessionEvent> {
        let session_id = mounts.session_id().or_else(|| principal.session_id())?;
        let at = self.now();
        let (input, place) = describe(mounts, input);
        Some(SessionEvent {
            tenant_id: principal.tenant_id,
            session_id,
            event_id: EventId::from_uuid(self.0.ids.uuid(at)),
            at,
            name: if is_name(name) { name } else { UNNAMED }.to_owned(),
            input,
            place,
        })
    }

    /// Lists the events of a session in the order of their times; those of the
    /// last half-minute that other replicas served are missing.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::Invalid`],
    /// [`EngineError::SessionNotFound`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.session_events", level = "debug", skip_all)]
    pub async fn session_events(
        &self,
        principal: &Principal,
        session_id: SessionId,
        query: &EventQuery,
    ) -> Result<Page<SessionEvent>, EngineError> {
        self.session(principal, session_id).await?;
        let limit = query.page.session_limit()?;
        let tenant_id = principal.tenant_id;
        let time = |time: Option<Timestamp>| time.map_or(String::new(), |time| time.as_micros().to_string());
        let identity = Query::of(&[
            b"session_events",
            tenant_id.uuid().as_bytes(),
            session_id.uuid().as_bytes(),
            time(query.from).as_bytes(),
            time(query.to).as_bytes(),
            &[u8::from(query.newest_first)],
        ]);
        let after = match &query.page.page {
            Some(page) => Some(position_of(&self.unseal(identity, page).await?)?),
            None => None,
        };
        let listing = EventListing {
            // Those granted, not those attached: a store may have been detached since.
            only: principal.granted_store_ids().map(<[StoreId]>::to_vec),
            from: query.from,
            to: query.to,
            newest_first: query.newest_first,
            after: after.map(|(at, id)| (at, EventId::from_uuid(id))),
            // One more tells whether there is another page.
            limit: limit + 1,
        };
        // Before the rows: what is written meanwhile is found twice, not never.
        let noted = self.0.sessions.noted(tenant_id, session_id);
        let index = &self.0.index;
        let mut items = index.list_session_events(tenant_id, session_id, &listing).await?;
        items.extend(noted.into_iter().filter(|event| listing.asks_for(event)));
        items.sort_by_key(|event| (event.at, event.event_id));
        items.dedup_by_key(|event| event.event_id);
        if query.newest_first {
            items.reverse();
        }
        let place = |event: &SessionEvent| position(event.at, event.event_id.uuid());
        self.page_of(identity, items, limit, place).await
    }
}

/// An input without content, and where its paths led.
///
/// A path that leads nowhere is left out like content: no erasure could tell what
/// it names.
fn describe(mounts: &Mounts, input: &Map<String, Value>) -> (Map<String, Value>, Option<EventPlace>) {
    let parsed = PATHS.map(|name| {
        let text = input.get(name)?.as_str()?;
        ToolPath::parse_in(text, mounts.root()).ok()
    });
    let place = place_of(mounts, parsed.iter().flatten());
    // No other fields: what nobody asked for could be any number of them.
    let is_known = |name: &str| {
        [&PATHS[..], &CONTENTS, &KEPT]
            .iter()
            .any(|names| names.contains(&name))
    };
    let known = input.iter().filter(|(name, _)| is_known(name));
    let kept = known.map(|(name, value)| {
        let is_led = PATHS.iter().zip(&parsed).any(|(path, parsed)| {
            path == name
                && parsed
                    .as_ref()
                    .is_some_and(|path| place.is_some() || path.is_mounts())
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

/// The store that all paths lie in, and where.
fn place_of<'a>(mounts: &Mounts, paths: impl Iterator<Item = &'a ToolPath>) -> Option<EventPlace> {
    let mut place: Option<EventPlace> = None;
    for path in paths {
        let store_id = mounts.store_of(path)?.store_id;
        let text = path.memory().map_or("", MemoryPath::as_str).to_owned();
        match &mut place {
            None => {
                place = Some(EventPlace {
                    store_id,
                    path: text,
                    new_path: None,
                });
            }
            Some(place) if place.store_id == store_id => place.new_path = Some(text),
            // In two stores: refused, and found by neither's erasure.
            Some(_) => return None,
        }
    }
    place
}

/// Whether a tool or a command may have this name, which is no content itself.
fn is_name(name: &str) -> bool {
    (1..=KEPT_CHARS).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

fn is_small(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => is_name(text),
        Value::Array(items) => items.len() <= 2 && items.iter().all(Value::is_number),
        Value::Object(_) => false,
    }
}

/// What stands for a content: how many bytes it has.
fn size_of(value: &Value) -> Value {
    let bytes = match value {
        Value::Null | Value::Bool(_) => return value.clone(),
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    };
    json!({"size_bytes": bytes})
}
