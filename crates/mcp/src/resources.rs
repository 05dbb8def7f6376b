//! Memories as resources: `memory://{slug}/{path}`.
//!
//! The URI has the slug of the store and the path of the memory, each segment
//! percent-encoded. A cursor is the number of the store and the engine's cursor
//! in that store.

use keepsake_core::MemoryPath;
use keepsake_core::tool::{ToolPath, tool_display};
use keepsake_engine::{Engine, MemoryQuery, Mounted, PageRequest, ShownItem, View};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use crate::Access;
use crate::error::to_error_data;

const SCHEME: &str = "memory://";
/// The number of resources on a page.
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
        .with_description("A memory, by the slug of its store and its path in the store")
}

/// One page of all memories, store by store.
pub(crate) async fn list(
    engine: &Engine,
    access: &Access,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let stores: Vec<Mounted> = access.mounts.iter().map(|(_, mounted)| mounted).collect();
    let (mut number, mut page) = match cursor {
        None => (0, None),
        Some(cursor) => position(cursor).ok_or_else(no_cursor)?,
    };
    if number > stores.len() {
        return Err(no_cursor());
    }
    while let Some((mounted, slug)) = stores.get(number).zip(access.slugs.get(number)) {
        let query = MemoryQuery {
            path: None,
            path_prefix: None,
            depth: None,
            page: PageRequest { limit: Some(PAGE), page: page.take() },
        };
        let principal = &access.principal;
        let found = engine.memories.list(principal, mounted.store_id, &query, View::Basic).await;
        let found = found.map_err(|error| to_error_data(&error))?;
        let is_last_store = number + 1 == stores.len();
        let next_cursor = match found.next {
            Some(next) => Some(format!("{number}.{next}")),
            None if is_last_store => None,
            None => Some(format!("{}.", number + 1)),
        };
        let resources: Vec<_> = found.items.iter().filter_map(|item| resource(slug, item)).collect();
        if !resources.is_empty() || next_cursor.is_none() {
            let mut result = ListResourcesResult::with_all_items(resources);
            result.next_cursor = next_cursor;
            return Ok(result);
        }
        // Stores without memories are skipped.
        number += 1;
    }
    Ok(ListResourcesResult::with_all_items(Vec::new()))
}

/// The store of a cursor, and the engine's cursor in it.
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
    let resource = Resource::new(uri_of(slug, path), tool_display(Some(slug), path))
        .with_title(path.name())
        .with_mime_type(mime_type(path.name()))
        .with_size(head.size_bytes);
    Some(resource)
}

/// The content of one memory.
pub(crate) async fn read(
    engine: &Engine,
    access: &Access,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let Some(path) = path_of(access, uri) else {
        return Err(not_found());
    };
    let text = engine
        .tools
        .agent
        .read_file(&access.principal, access.mounts.clone(), &path)
        .await
        .map_err(|error| to_error_data(&error))?;
    let Some((path, text)) = path.memory().zip(text) else {
        return Err(not_found());
    };
    let contents = ResourceContents::text(&*text, uri).with_mime_type(mime_type(path.name()));
    Ok(ReadResourceResult::new(vec![contents]))
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
