//! The agent tools on a store, or on a session's stores.
//!
//! They make the same reads and changes as the memory tool. Their results are typed, for
//! models and programs.

use keepsake_core::tool::agent::{
    AgentCall, AgentResult, Hit, ListingEntry, WrittenVersion, fitting_entries, read,
};
use keepsake_core::tool::{Edit, ToolError, ToolInput, ToolPath};
use keepsake_core::{ContentHash, MemoryPath, ObjectKind, Precondition, StoreId};
use keepsake_index::{Depth, Head, MemoryItem, MemoryListing, Target};

use super::changes::{content_differs, delete, store_edit};
use super::{Stop, ToolAnswer, ToolCommand, Tools, of_read};
use crate::cursor::Query;
use crate::write::{Decision, PathRead, Reads};
use crate::{EngineError, Mount, Mounts, Page, PageRequest, Principal, SearchHit, SearchPage, SearchQuery};

impl ToolCommand for AgentCall {
    fn refusal_of_mount(&self) -> Option<ToolError> {
        match self {
            Self::Delete { path, .. } if path.mount().is_some() && path.is_root() => {
                Some(ToolError::CannotDeleteMount { path: path.display().to_owned() })
            }
            _ => None,
        }
    }

    fn not_found(&self) -> ToolError {
        self.missing()
    }

    async fn on_mounts(
        self,
        tools: &Tools,
        principal: &Principal,
        mounts: &Mounts,
    ) -> Result<ToolAnswer, Stop> {
        match self {
            Self::List { path, .. } => {
                let entry = |(slug, mounted): (Option<&str>, Mount)| ListingEntry::Directory {
                    path: format!("{path}/{}/", slug.unwrap_or_default()),
                    read_only: mounted.is_read_only,
                };
                Ok(AgentResult::List {
                    path: path.display().to_owned(),
                    entries: mounts.iter().map(entry).collect(),
                    next_page: None,
                }
                .into())
            }
            Self::Search { path, query, limit, page } => {
                search(tools, principal, mounts, &path, query, PageRequest { limit, page }).await
            }
            Self::Delete { .. } => Err(ToolError::CannotDeleteRoot.into()),
            Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::Edit { path, .. }
            | Self::Append { path, .. } => Err(is_directory(&path).into()),
        }
    }

    async fn show(
        self,
        tools: &Tools,
        principal: &Principal,
        mounts: &Mounts,
        store_id: StoreId,
    ) -> Result<ToolAnswer, Stop> {
        match self {
            Self::List { path, is_shallow, limit, page } => {
                list(tools, principal, store_id, &path, is_shallow, &PageRequest { limit, page }).await
            }
            Self::Search { path, query, limit, page } => {
                search(tools, principal, mounts, &path, query, PageRequest { limit, page }).await
            }
            Self::Read { path, offset, limit } => {
                let (contents, tenant_id) = (&tools.shared.contents, principal.tenant_id);
                let found = contents.at_path(tenant_id, store_id, path.memory(), 0).await;
                let (found, text) = found.map_err(of_read(&path))?;
                let (Target::Memory(head), Some(text)) = (&found.target, text) else {
                    return Err(match found.target {
                        Target::Directory(_) => is_directory(&path),
                        Target::Missing | Target::Memory(_) => missing(&path),
                    }
                    .into());
                };
                let part = read(&path, &text, offset, limit, principal.limits.max_view_chars)?;
                tools.shared.access.note_read(principal, store_id, head);
                Ok(AgentResult::Read(part).into())
            }
            Self::Write { .. } | Self::Edit { .. } | Self::Append { .. } | Self::Delete { .. } => {
                Err(EngineError::Internal("another call was taken for a read").into())
            }
        }
    }

    fn reads(&self) -> Result<Reads<'_>, ToolError> {
        match self {
            Self::List { .. } | Self::Search { .. } | Self::Read { .. } => Ok(Reads::Nothing),
            Self::Edit { .. } | Self::Append { .. } => Ok(Reads::Content),
            Self::Delete { path, .. } if path.is_root() => Err(ToolError::CannotDeleteRoot),
            Self::Delete { expected: None, .. } => Ok(Reads::Tree),
            Self::Write { .. } | Self::Delete { .. } => Ok(Reads::Head),
        }
    }

    fn propose(&self, read: &PathRead) -> Result<Decision, ToolError> {
        let path = self.path();
        if let Self::Delete { expected, .. } = self {
            return delete(path, *expected, read);
        }
        let head = match &read.target {
            Target::Missing => None,
            Target::Memory(head) => Some(head),
            Target::Directory(_) => return Err(is_directory(path)),
        };
        match (self.precondition(), head) {
            (Some(Precondition::NotExists), Some(head)) => {
                return Err(ToolError::Exists {
                    path: path.display().to_owned(),
                    current: Some(head.content.sha256),
                });
            }
            (Some(Precondition::ContentSha256(_)), None) => return Err(self.missing()),
            (Some(Precondition::ContentSha256(expected)), Some(head))
                if expected != head.content.sha256 && !is_applied(self, head) =>
            {
                return Err(content_differs(path, head));
            }
            _ => {}
        }
        store_edit(path, self.edit(read.text.as_deref())?, read)
    }

    fn path_taken(&self) -> Option<ToolError> {
        None
    }

    fn answer(
        &self,
        principal: &Principal,
        edit: Option<&Edit>,
        made: Option<WrittenVersion>,
    ) -> Result<ToolAnswer, Stop> {
        let result = self.result(edit, made, principal.limits.max_view_chars)?;
        let result = result.ok_or(EngineError::Internal("a read was taken for a change"))?;
        Ok(if principal.may_read() { result } else { result.concealed() }.into())
    }
}

/// Whether the file has the content of a write already, as after an earlier try.
fn is_applied(call: &AgentCall, head: &Head) -> bool {
    match call {
        AgentCall::Write { content, .. } => head.content.sha256 == ContentHash::of(content.as_bytes()),
        _ => false,
    }
}

/// Searches below a path: in the path's store, or in all stores when the path is
/// `/memories` of a session.
async fn search(
    tools: &Tools,
    principal: &Principal,
    mounts: &Mounts,
    path: &ToolPath,
    query: String,
    page: PageRequest,
) -> Result<ToolAnswer, Stop> {
    let store_ids: Vec<_> = match mounts.store_of(path) {
        Some(mounted) => vec![mounted.store_id],
        None => mounts.iter().map(|(_, mounted)| mounted.store_id).collect(),
    };
    let path_prefix = path.memory().map(|_| path.dir().as_str().to_owned());
    let query = SearchQuery { query, path_prefix, explain: false, page };
    let found = tools.search.find(principal, &store_ids, &query).await;
    let SearchPage { items, mut next, scoring, .. } = found.map_err(for_the_model)?;
    let named = |store_id, memory: &MemoryPath| {
        let of_hit = |(_, mounted): &(_, Mount)| mounted.store_id == store_id;
        match mounts.iter().find(of_hit) {
            Some((Some(slug), _)) if path.is_mounts() => format!("{path}/{slug}{memory}"),
            _ => path.display_of(memory),
        }
    };
    let hit = |hit: &SearchHit| Hit {
        path: named(hit.store_id, &hit.path),
        score: hit.score,
        line: hit.line,
        snippet: hit.snippet.clone(),
    };
    let mut hits: Vec<Hit> = items.iter().map(hit).collect();
    let fitting = fitting_entries(&hits, principal.limits.max_view_chars);
    if fitting < hits.len() {
        hits.truncate(fitting);
        let last = &items[fitting - 1];
        next = Some(tools.search.page_after(principal, &store_ids, &query, scoring, last).await?);
    }
    Ok(AgentResult::Search { hits, next_page: next }.into())
}

async fn list(
    tools: &Tools,
    principal: &Principal,
    store_id: StoreId,
    path: &ToolPath,
    is_shallow: bool,
    request: &PageRequest,
) -> Result<ToolAnswer, Stop> {
    let tenant_id = principal.tenant_id;
    let below = path.dir();
    let limit = request.limit(false)?;
    let query = Query::of(&[
        b"memory_list",
        tenant_id.uuid().as_bytes(),
        store_id.uuid().as_bytes(),
        below.as_str().as_bytes(),
        &[u8::from(is_shallow)],
    ]);
    let cursors = &tools.shared.context.cursors;
    let after = cursors.after(query, request).await;
    let after = after.map_err(for_the_model)?;
    let mut listing = MemoryListing {
        below,
        depth: if is_shallow { Depth::Children } else { Depth::All },
        after,
        // One more item shows whether there is another page.
        limit: limit + 1,
    };
    let items = loop {
        let found = tools.shared.context.index.memories.list(tenant_id, store_id, &listing).await?;
        let items = found.ok_or(EngineError::NotFound(ObjectKind::Store))?.items;
        if items.is_empty() && listing.after.is_none() && path.memory().is_some() {
            return Err(why_nothing_is_below(tools, principal, store_id, path).await?.into());
        }
        // A page begins with an entry that is shown, so that it is empty only at the end.
        let last_setting = items.iter().take_while(|item| is_setting(item)).last();
        match last_setting.map(|item| item.path().to_owned()) {
            None => break items,
            after => listing.after = after,
        }
    };
    let entries: Vec<ListingEntry> = items.iter().map(|item| entry(path, item)).collect();
    let fitting = fitting_entries(&entries, principal.limits.max_view_chars);
    let limit = limit.min(u32::try_from(fitting).unwrap_or(u32::MAX));
    let place = |item: &MemoryItem| item.path().to_owned();
    let Page { items, next } = cursors.page(query, items, limit, place).await?;
    let listed = entries.into_iter().zip(&items).filter(|(_, item)| !is_setting(item));
    let entries = listed.map(|(entry, _)| entry).collect();
    Ok(AgentResult::List { path: path.display().to_owned(), entries, next_page: next }.into())
}

async fn why_nothing_is_below(
    tools: &Tools,
    principal: &Principal,
    store_id: StoreId,
    path: &ToolPath,
) -> Result<ToolError, EngineError> {
    let tenant_id = principal.tenant_id;
    let lookup = tools.shared.context.look_up(tenant_id, store_id, path.memory()).await?;
    Ok(match lookup.target {
        Target::Memory(_) => ToolError::IsFile { path: path.display().to_owned() },
        Target::Missing | Target::Directory(_) => missing(path),
    })
}

/// Converts an invalid field to an error that the model can correct.
fn for_the_model(error: EngineError) -> Stop {
    match error {
        EngineError::Invalid { field, rule } => ToolError::OutOfBounds { field, rule }.into(),
        error => Stop::Engine(error),
    }
}

fn is_directory(path: &ToolPath) -> ToolError {
    ToolError::IsDirectory { path: path.display().to_owned() }
}

fn missing(path: &ToolPath) -> ToolError {
    ToolError::NotFoundEdit { path: path.display().to_owned() }
}

/// Whether the item is a setting of the store, which lists for agents leave out.
fn is_setting(item: &MemoryItem) -> bool {
    match item {
        MemoryItem::Memory((memory, _)) => memory.head.path.is_setting(),
        MemoryItem::Prefix(directory) => directory.is_of_settings(),
    }
}

fn entry(path: &ToolPath, item: &MemoryItem) -> ListingEntry {
    match item {
        MemoryItem::Memory((memory, first_line)) => ListingEntry::File {
            path: path.display_of(&memory.head.path),
            content_size_bytes: memory.head.content.size_bytes,
            updated_at: memory.updated_at.to_rfc3339(),
            first_line: first_line.clone(),
        },
        MemoryItem::Prefix(directory) => ListingEntry::Directory {
            path: directory
                .as_file()
                .map_or_else(|| path.display().to_owned(), |name| path.display_of(&name) + "/"),
            read_only: false,
        },
    }
}
