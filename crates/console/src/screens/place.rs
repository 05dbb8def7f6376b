//! What stands beside a directory or a memory: the tree of its store, and the newest changes.

use std::collections::HashMap;

use askama::Template;
use keepsake_core::{MemoryId, StoreId, words};
use keepsake_engine::{MemoryQuery, Page, PageRequest, ShownItem, VersionQuery, View};
use keepsake_index::DirectorySummary;

use super::memory::href_of;
use super::tree::directory_href;
use super::version::{VersionRow, newest_versions, rows_of};
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page};
use crate::path::Path;
use crate::people::{People, authors};
use crate::request::Caller;
use crate::text::markup::{Markup, name_of};

/// Maximum number of entries of a directory in the tree; the directory's page lists all.
const PER_BRANCH: u64 = 50;
/// Maximum number of directories that the tree opens; each needs a query.
const MAX_OPEN: usize = 8;
const RECENT: u64 = 5;

/// The entries of a directory, with those of the directory among them that is open.
#[derive(Template)]
#[template(path = "branch.html")]
pub(super) struct Branch {
    nodes: Vec<Node>,
    /// The directory's page, if it has more entries.
    more_href: Option<String>,
}

struct Node {
    name: Markup,
    href: String,
    /// `None`: a memory.
    directory: Option<Directory>,
    is_current: bool,
}

struct Directory {
    /// The address of its branch.
    branch_href: String,
    /// Memories below it; empty: not known.
    memories: String,
    /// `None`: the directory is closed.
    open: Option<Branch>,
}

/// The tree in which a memory, or a directory, can be seen.
pub(super) async fn tree(caller: &Caller, store_id: StoreId, shown: &str) -> Result<Branch, Refusal> {
    let mut lists = Vec::new();
    for directory in directories_above(shown) {
        lists.push((directory, list(caller, store_id, directory).await?));
    }
    let paths = directories_in(lists.iter().flat_map(|(_, list)| &list.items));
    let summaries = summaries_of(caller, store_id, &paths).await?;
    let mut open: Option<(&str, Branch)> = None;
    for (directory, list) in lists.into_iter().rev() {
        let mut nodes: Vec<_> =
            list.items.iter().map(|item| Node::of(store_id, item, shown, &summaries)).collect();
        if let Some((path, branch)) = open.take() {
            let href = directory_href(store_id, path);
            let place = nodes.iter().position(|node| node.href == href).unwrap_or_else(|| {
                // It is not among the first entries.
                nodes.push(Node::of_directory(store_id, path, shown, &summaries));
                nodes.len() - 1
            });
            if let Some(directory) = &mut nodes[place].directory {
                directory.open = Some(branch);
            }
        }
        let more_href = list.next.is_some().then(|| directory_href(store_id, directory));
        open = Some((directory, Branch { nodes, more_href }));
    }
    Ok(open.map_or_else(|| Branch { nodes: Vec::new(), more_href: None }, |(_, branch)| branch))
}

/// The directories on the way to a path, from the root on.
fn directories_above(shown: &str) -> impl Iterator<Item = &str> {
    shown.match_indices('/').map(|(place, _)| &shown[..=place]).take(MAX_OPEN)
}

/// The entries of a directory.
pub(super) fn entries_of(directory: &str, page: PageRequest) -> MemoryQuery {
    MemoryQuery { path: None, path_prefix: Some(directory.to_owned()), depth: Some(1), page }
}

async fn list(caller: &Caller, store_id: StoreId, directory: &str) -> Result<Page<ShownItem>, Refusal> {
    let query = entries_of(directory, PageRequest { limit: Some(PER_BRANCH), page: None });
    Ok(caller.engine.memories.list(&caller.principal, store_id, &query, View::Basic).await?)
}

/// The paths of the directories among items.
pub(super) fn directories_in<'a>(items: impl Iterator<Item = &'a ShownItem>) -> Vec<&'a str> {
    let paths = items.filter_map(|item| match item {
        ShownItem::Prefix(path) => Some(path.as_str()),
        ShownItem::Memory(_) => None,
    });
    paths.collect()
}

/// The summaries of directories, by their paths.
pub(super) async fn summaries_of(
    caller: &Caller,
    store_id: StoreId,
    paths: &[&str],
) -> Result<HashMap<String, DirectorySummary>, Refusal> {
    if paths.is_empty() {
        return Ok(HashMap::new());
    }
    let found = caller.engine.memories.directories(&caller.principal, store_id, paths).await?;
    Ok(found.into_iter().map(|summary| (summary.path.clone(), summary)).collect())
}

impl Node {
    fn of(
        store_id: StoreId,
        item: &ShownItem,
        shown: &str,
        summaries: &HashMap<String, DirectorySummary>,
    ) -> Self {
        match item {
            ShownItem::Prefix(path) => Self::of_directory(store_id, path.as_str(), shown, summaries),
            ShownItem::Memory(memory) => {
                let head = &memory.memory.head;
                Self {
                    name: name_of(head.path.as_str()),
                    href: href_of(store_id, head.memory_id),
                    directory: None,
                    is_current: head.path.as_str() == shown,
                }
            }
        }
    }

    fn of_directory(
        store_id: StoreId,
        path: &str,
        shown: &str,
        summaries: &HashMap<String, DirectorySummary>,
    ) -> Self {
        let href = directory_href(store_id, path);
        let summary = summaries.get(path);
        Self {
            name: name_of(path),
            directory: Some(Directory {
                branch_href: href.replacen("?path=", "/branch?path=", 1),
                memories: summary.map_or_else(String::new, |summary| words::count(summary.files)),
                open: None,
            }),
            href,
            is_current: path == shown,
        }
    }
}

/// A number of memories in words.
pub(super) fn memories(number: u64) -> String {
    words::counted(number, "memory")
}

/// `GET /console/stores/{id}/branch?path=`: the entries of a directory that a person opens in the tree
pub(super) async fn branch(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let directory = caller.query.filled("path").unwrap_or("/");
    let found = list(&caller, store_id, directory).await?;
    let summaries = summaries_of(&caller, store_id, &directories_in(found.items.iter())).await?;
    page(&Branch {
        nodes: found.items.iter().map(|item| Node::of(store_id, item, "", &summaries)).collect(),
        more_href: found.next.is_some().then(|| directory_href(store_id, directory)),
    })
}

/// The newest versions of a memory or of a store, and their authors.
pub(super) async fn recent(
    caller: &Caller,
    store_id: StoreId,
    memory_id: Option<MemoryId>,
    frame: &Frame,
) -> Result<(Vec<VersionRow>, People), Refusal> {
    let query = VersionQuery { memory_id, ..VersionQuery::default() };
    let found = newest_versions(caller, store_id, RECENT, query).await?;
    let people = People::look_up(caller, authors(&found)).await;
    Ok((rows_of(caller, store_id, &found, &people, frame).await?, people))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_a_path_begin_with_the_root() {
        for (shown, above) in [("/", "/"), ("/a.md", "/"), ("/a/b/", "/ /a/ /a/b/"), ("/a/b.md", "/ /a/")] {
            assert_eq!(directories_above(shown).collect::<Vec<_>>().join(" "), above, "{shown}");
        }
    }
}
