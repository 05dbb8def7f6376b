//! Memories as resources: `memory://{slug}/{path}`.
//!
//! The URI has the slug of the store and the path of the memory, each segment
//! percent-encoded, and `?offset=N` if a part of a long memory is read. A cursor is the
//! number of the store and the engine's cursor in that store. Like the results of tools,
//! a page and a part are within the view limit, since clients show them to models.

use keepsake_core::tool::agent::{PartOfFile, fitting_entries, read as part_of};
use keepsake_core::tool::{ToolPath, tool_display};
use keepsake_core::{MemoryPath, ObjectKind, StoreId};
use keepsake_engine::{Engine, EngineError, MemoryQuery, Mount, PageRequest, ShownItem, View};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use crate::Access;
use crate::error::to_error_data;

const SCHEME: &str = "memory://";
/// The query of the URI of a part, before the number of its first character. In a path, `?`
/// is percent-encoded.
const OFFSET: &str = "?offset=";
/// Maximum number of resources on a page.
const PAGE: u64 = 100;
/// The characters that are percent-encoded in a segment of a URI's path.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

pub(crate) fn template() -> ResourceTemplate {
    ResourceTemplate::new(format!("{SCHEME}{{slug}}/{{+path}}"), "memory")
        .with_title("A memory")
        .with_description(
            "A memory, by the slug of its store and its path in the store. A long one is read in parts: \
             `?offset=N` begins at a character",
        )
}

/// One page of all memories, store by store.
pub(crate) async fn list(
    engine: &Engine,
    access: &Access,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let stores: Vec<Mount> = access.mounts.iter().map(|(_, mounted)| mounted).collect();
    let (mut number, mut page) = match cursor {
        None => (0, None),
        Some(cursor) => position(cursor).ok_or_else(no_cursor)?,
    };
    if number > stores.len() {
        return Err(no_cursor());
    }
    while let Some((mounted, slug)) = stores.get(number).zip(access.slugs.get(number)) {
        let (resources, next) = page_of(engine, access, mounted.store_id, slug, page.take()).await?;
        let is_last_store = number + 1 == stores.len();
        let next_cursor = match &next {
            Some(next) => Some(format!("{number}.{next}")),
            None if is_last_store => None,
            None => Some(format!("{}.", number + 1)),
        };
        if !resources.is_empty() || next_cursor.is_none() {
            let mut result = ListResourcesResult::with_all_items(resources);
            result.next_cursor = next_cursor;
            return Ok(result);
        }
        // A page can have only settings of the store, and a store no memories.
        if next.is_none() {
            number += 1;
        }
        page = next;
    }
    Ok(ListResourcesResult::with_all_items(Vec::new()))
}

/// One page of a store's memories, and the engine's cursor of the next one.
async fn page_of(
    engine: &Engine,
    access: &Access,
    store_id: StoreId,
    slug: &str,
    page: Option<String>,
) -> Result<(Vec<Resource>, Option<String>), ErrorData> {
    let principal = &access.principal;
    let mut limit = PAGE;
    loop {
        let page = PageRequest { limit: Some(limit), page: page.clone() };
        let query = MemoryQuery { path: None, path_prefix: None, depth: None, page };
        let found = match engine.memories.list(principal, store_id, &query, View::Basic).await {
            // One of a session's stores may have been deleted meanwhile.
            Err(EngineError::NotFound(ObjectKind::Store)) if access.mounts.session_id().is_some() => {
                return Ok((Vec::new(), None));
            }
            found => found.map_err(|error| to_error_data(&error))?,
        };
        let resources: Vec<_> = found.items.iter().filter_map(|item| resource(slug, item)).collect();
        let fitting = fitting_entries(&resources, principal.limits.max_view_chars);
        if fitting >= resources.len() {
            return Ok((resources, found.next));
        }
        // Only the engine can tell where a shorter page ends.
        limit = fitting as u64;
    }
}

/// Splits a cursor into the number of a store in the list and the engine's cursor in that store.
fn position(cursor: &str) -> Option<(usize, Option<String>)> {
    let (number, page) = cursor.split_once('.')?;
    let page = Some(page.to_owned()).filter(|page| !page.is_empty());
    Some((number.parse().ok()?, page))
}

fn no_cursor() -> ErrorData {
    ErrorData::invalid_params("`cursor` must be the `nextCursor` of an earlier response", None)
}

fn resource(slug: &str, item: &ShownItem) -> Option<Resource> {
    let ShownItem::Memory(memory) = item else {
        return None;
    };
    let head = &memory.memory.head;
    let path = &head.path;
    if path.is_setting() {
        return None;
    }
    let resource = Resource::new(uri_of(slug, path), tool_display(Some(slug), path))
        .with_title(path.name())
        .with_mime_type(mime_type(path.name()))
        .with_size(head.content.size_bytes);
    Some(resource)
}

/// The content of one memory, or a part of it and how to read on.
pub(crate) async fn read(
    engine: &Engine,
    access: &Access,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let (of_memory, offset) = without_offset(uri);
    let Some(path) = path_of(access, of_memory) else {
        return Err(not_found());
    };
    let text = engine
        .tools
        .read_file(&access.principal, access.mounts.clone(), &path)
        .await
        .map_err(|error| to_error_data(&error))?;
    let Some((memory, text)) = path.memory().zip(text) else {
        return Err(not_found());
    };
    let part = part_within(&path, &text, offset, access.principal.limits.max_view_chars)?;
    let of_part = ResourceContents::text(part.content, uri).with_mime_type(mime_type(memory.name()));
    let mut contents = vec![of_part];
    if let Some(next) = part.next_offset {
        // A separate content, so that the part stays as it is stored.
        let (total, path) = (part.total_chars, part.path);
        let rest = format!("{of_memory}{OFFSET}{next}");
        let notice = format!(
            "[Characters {offset} to {next} of {total} shown. Read on with the resource {rest}, or with \
             memory_read of {path} and offset {next}.]"
        );
        contents.push(ResourceContents::text(notice, rest));
    }
    Ok(ReadResourceResult::new(contents))
}

/// A part that is within the limit together with the notice that follows it.
fn part_within(path: &ToolPath, text: &str, offset: u64, max_chars: u64) -> Result<PartOfFile, ErrorData> {
    let is_last = text.chars().count() as u64 <= offset.saturating_add(max_chars);
    let max_chars = if is_last { max_chars } else { max_chars - max_chars / 4 };
    part_of(path, text, offset, None, max_chars)
        .map_err(|error| ErrorData::invalid_params(error.to_string(), None))
}

/// The URI of the memory, and the first character to read.
fn without_offset(uri: &str) -> (&str, u64) {
    let parts = uri.rsplit_once(OFFSET);
    let parts = parts.and_then(|(of_memory, offset)| Some((of_memory, offset.parse().ok()?)));
    parts.unwrap_or((uri, 0))
}

fn not_found() -> ErrorData {
    ErrorData::resource_not_found("there is no memory with this URI", None)
}

fn uri_of(slug: &str, path: &MemoryPath) -> String {
    format!("{SCHEME}{slug}{}", utf8_percent_encode(path.as_str(), ENCODED))
}

/// The path of a URI in the form that tools use.
fn path_of(access: &Access, uri: &str) -> Option<ToolPath> {
    let rest = uri.strip_prefix(SCHEME)?;
    let (slug, path) = rest.split_at(rest.find('/')?);
    let path = percent_decode_str(path).decode_utf8().ok()?;
    let memory = MemoryPath::parse_normalised(&path).ok()?;
    if !access.slugs.iter().any(|mounted| mounted == slug) {
        return None;
    }
    let has_mounts = access.mounts.single().is_none();
    let display = tool_display(has_mounts.then_some(slug), &memory);
    ToolPath::parse_in(&display, access.mounts.root()).ok()
}

fn mime_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("md" | "markdown") => "text/markdown",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        Some("csv") => "text/csv",
        Some("html" | "htm") => "text/html",
        Some("yaml" | "yml") => "application/yaml",
        _ => "text/plain",
    }
}
