//! The agent tools on a store, or on a session's stores.
//!
//! They make the same reads and changes as the memory tool. Their results are typed, for
//! models and programs.

use std::sync::Arc;

use keepsake_core::tool::agent::{
    AgentCall, AgentResult, AgentTool, Hit, Hits, Listing, ListingEntry, fitting_entries, read,
};
use keepsake_core::tool::{ToolError, ToolPath};
use keepsake_core::{MemoryPath, ObjectKind, StoreId};
use keepsake_index::{Depth, MemoryItem, MemoryListing, Scope, Target};

use super::{Stop, ToolAnswer, ToolCall, ToolServices, of_read, settle};
use crate::content::Found;
use crate::cursor::{Query, parse_text};
use crate::memories::conceal_outcome;
use crate::{EngineError, Mounted, Mounts, Page, PageRequest, Principal, Search, SearchHit, SearchQuery};

#[derive(Debug)]
pub struct AgentTools {
    pub(super) services: ToolServices,
    pub(super) search: Search,
}

impl AgentTools {
    /// A change runs to its end even when this future is dropped. After a failure of the
    /// index the change may have been committed; a call with a `tool_use_id` can be
    /// repeated.
    #[tracing::instrument(name = "engine.call_agent_tool", level = "debug", skip_all)]
    pub async fn call(
        &self,
        principal: &Arc<Principal>,
        mounts: impl Into<Mounts>,
        tool: AgentTool,
        call: ToolCall,
    ) -> Result<ToolAnswer, EngineError> {
        let mounts = principal.seen(mounts.into())?;
        if tool.is_change() {
            principal.require(Scope::MemoryWrite)?;
        }
        if tool.shows_content() {
            principal.require(Scope::MemoryRead)?;
        }
        let agent_call = match AgentCall::parse(tool, &call.input, mounts.root()) {
            Ok(agent_call) => agent_call,
            Err(error) => return self.services.refuse(principal, &mounts, error).await,
        };
        if let AgentCall::Search { path, query, limit, page } = agent_call {
            let page = PageRequest { limit, page };
            let found = self.search(principal, &mounts, &path, query, page);
            return Ok(settle(found.await)?.into());
        }
        let Some(Mounted { store_id, is_read_only }) = mounts.store_of(agent_call.path()) else {
            return Ok(on_mounts(&mounts, &agent_call).into());
        };
        if let Some(refusal) = refusal_of_mount(&agent_call, is_read_only) {
            return Ok(refusal.into());
        }
        let outcome = if tool.is_change() {
            self.services.changes.make(principal, &mounts, store_id, tool.name(), call, agent_call).await?
        } else {
            settle(self.show(principal, store_id, agent_call).await)?
        };
        let is_shown = principal.may_read();
        let outcome = outcome.map(|result| if is_shown { result } else { result.concealed() });
        Ok(conceal_outcome(principal, outcome).into())
    }

    /// The content of the file at a path; `None`: no file exists there. Counts
    /// as access.
    #[tracing::instrument(name = "engine.read_file", level = "debug", skip_all)]
    pub async fn read_file(
        &self,
        principal: &Principal,
        mounts: impl Into<Mounts>,
        path: &ToolPath,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let mounts = principal.seen(mounts.into())?;
        principal.require(Scope::MemoryRead)?;
        let Some(Mounted { store_id, .. }) = mounts.store_of(path) else {
            return Ok(None);
        };
        match self.services.contents.at_path(principal.tenant_id, store_id, path.memory(), 0).await?.1 {
            Found::Memory(head, text) => {
                self.services.access.note_read(principal, store_id, head.memory_id);
                Ok(Some(text))
            }
            Found::Missing | Found::Directory(_) => Ok(None),
        }
    }

    async fn show(
        &self,
        principal: &Principal,
        store_id: StoreId,
        call: AgentCall,
    ) -> Result<AgentResult, Stop> {
        match call {
            AgentCall::List { path, is_shallow, limit, page } => {
                let page = PageRequest { limit, page };
                let listing = self.list(principal, store_id, &path, is_shallow, &page);
                Ok(AgentResult::List(listing.await?))
            }
            AgentCall::Read { path, offset, limit } => {
                let found =
                    self.services.contents.at_path(principal.tenant_id, store_id, path.memory(), 0).await;
                let (_, found) = found.map_err(of_read(&path))?;
                let (head, text) = match found {
                    Found::Memory(head, text) => (head, text),
                    Found::Directory(_) => return Err(is_directory(&path).into()),
                    Found::Missing => return Err(missing(&path).into()),
                };
                let part = read(&path, &text, offset, limit, principal.limits.max_view_chars)?;
                self.services.access.note_read(principal, store_id, head.memory_id);
                Ok(AgentResult::Read(part))
            }
            AgentCall::Search { .. }
            | AgentCall::Write { .. }
            | AgentCall::Edit { .. }
            | AgentCall::Append { .. }
            | AgentCall::Delete { .. } => {
                Err(EngineError::Internal("another call was taken for a read").into())
            }
        }
    }

    /// Searches below a path: in the path's store, or in all stores when the path is
    /// `/memories` of a session.
    async fn search(
        &self,
        principal: &Principal,
        mounts: &Mounts,
        path: &ToolPath,
        query: String,
        page: PageRequest,
    ) -> Result<AgentResult, Stop> {
        let store_ids: Vec<_> = match mounts.store_of(path) {
            Some(mounted) => vec![mounted.store_id],
            None => mounts.iter().map(|(_, mounted)| mounted.store_id).collect(),
        };
        let query =
            SearchQuery { query, path_prefix: path.memory().map(|_| path.dir().as_str().to_owned()), page };
        let found = self.search.find(principal, &store_ids, &query).await;
        let Page { items, mut next } = found.map_err(for_the_model)?;
        let named = |store_id, memory: &MemoryPath| {
            let of_hit = |(_, mounted): &(_, Mounted)| mounted.store_id == store_id;
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
            next = Some(self.search.page_after(principal, &store_ids, &query, &items[fitting - 1]).await?);
        }
        Ok(AgentResult::Search(Hits { hits, next_page: next }))
    }

    async fn list(
        &self,
        principal: &Principal,
        store_id: StoreId,
        path: &ToolPath,
        is_shallow: bool,
        request: &PageRequest,
    ) -> Result<Listing, Stop> {
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
        let cursors = &self.services.context.cursors;
        let after = cursors.after(query, request, parse_text).await;
        let after = after.map_err(for_the_model)?;
        let is_first = after.is_none();
        let listing = MemoryListing {
            below,
            depth: if is_shallow { Depth::Children } else { Depth::All },
            after,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let found = self.services.context.index.memories.list(tenant_id, store_id, &listing).await?;
        let items = found.ok_or(EngineError::NotFound(ObjectKind::Store))?.items;
        if items.is_empty() && is_first && path.memory().is_some() {
            return Err(self.why_nothing_is_below(principal, store_id, path).await?.into());
        }
        let mut entries: Vec<ListingEntry> = items.iter().map(|item| entry(path, item)).collect();
        let fitting = fitting_entries(&entries, principal.limits.max_view_chars);
        let limit = limit.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        let position = |item: &MemoryItem| item.path().as_bytes().to_vec();
        let Page { items, next } = cursors.page(query, items, limit, position).await?;
        entries.truncate(items.len());
        Ok(Listing { path: path.display().to_owned(), entries, next_page: next })
    }

    async fn why_nothing_is_below(
        &self,
        principal: &Principal,
        store_id: StoreId,
        path: &ToolPath,
    ) -> Result<ToolError, EngineError> {
        let tenant_id = principal.tenant_id;
        let lookup = self.services.context.look_up(tenant_id, store_id, path.memory()).await?;
        Ok(match lookup.target {
            Target::Memory(_) => ToolError::IsFile { path: path.display().to_owned() },
            Target::Missing | Target::Directory(_) => missing(path),
        })
    }
}

/// Carries out a call on `/memories` of a session, the root of the mounts.
fn on_mounts(mounts: &Mounts, call: &AgentCall) -> Result<AgentResult, ToolError> {
    match call {
        AgentCall::List { path, .. } => {
            let entry = |(slug, mounted): (Option<&str>, Mounted)| ListingEntry::Directory {
                path: format!("{path}/{}/", slug.unwrap_or_default()),
                read_only: mounted.is_read_only,
            };
            Ok(AgentResult::List(Listing {
                path: path.display().to_owned(),
                entries: mounts.iter().map(entry).collect(),
                next_page: None,
            }))
        }
        AgentCall::Delete { .. } => Err(ToolError::CannotDeleteRoot),
        AgentCall::Search { path, .. }
        | AgentCall::Read { path, .. }
        | AgentCall::Write { path, .. }
        | AgentCall::Edit { path, .. }
        | AgentCall::Append { path, .. } => Err(is_directory(path)),
    }
}

/// Refuses calls that the mount of their path does not allow.
fn refusal_of_mount(call: &AgentCall, is_read_only: bool) -> Option<ToolError> {
    let path = call.path();
    let named = || path.display().to_owned();
    if path.mount().is_some() && path.is_root() && matches!(call, AgentCall::Delete { .. }) {
        return Some(ToolError::CannotDeleteMount { path: named() });
    }
    (is_read_only && call.tool().is_change()).then(|| ToolError::ReadOnly { path: named() })
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

fn entry(path: &ToolPath, item: &MemoryItem) -> ListingEntry {
    match item {
        MemoryItem::Memory { memory, first_line } => ListingEntry::File {
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
