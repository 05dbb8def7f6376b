//! The pages of a list.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Client, ClientError, Parameter, Result, StatusCode};

/// Items per page, the server's maximum for items without content.
const PAGE_SIZE: &str = "100";

/// Maximum number of consecutive pages without an item. A server that searches for a
/// caller's items may give some: of 10,000 sessions, each page of 100 may have none to
/// show.
const MAX_EMPTY_PAGES: usize = 1_000;
/// Maximum number of pages of a list: ten million items.
const MAX_PAGES: usize = 100_000;

/// Reads a list page by page, as far as its items are taken.
#[derive(Debug)]
pub struct Pages<'a> {
    client: &'a Client,
    path: &'a [&'a str],
    query: &'a [Parameter<'a>],
    /// Items that were read and not yet taken.
    read: VecDeque<Value>,
    has_begun: bool,
    /// The cursor of the next page.
    next: Option<String>,
    progress: Progress,
}

#[derive(Deserialize)]
struct Page {
    data: VecDeque<Value>,
    next_page: Option<String>,
}

/// Counts the pages that were read, to detect a list that has no end.
#[derive(Debug, Default)]
struct Progress {
    pages: usize,
    empty_pages: usize,
    /// Hashes of the next pages' cursors: a cursor may be long.
    named: HashSet<u64>,
    hasher: RandomState,
}

impl Progress {
    /// Counts a page. The error is the reason why the list has no end.
    fn add(&mut self, page: &Page) -> Result<(), &'static str> {
        let Some(next) = &page.next_page else {
            return Ok(());
        };
        self.pages += 1;
        self.empty_pages = if page.data.is_empty() { self.empty_pages + 1 } else { 0 };
        if !self.named.insert(self.hasher.hash_one(next)) {
            Err("the list names a next page for the second time")
        } else if self.empty_pages > MAX_EMPTY_PAGES || self.pages > MAX_PAGES {
            Err("the list has no end")
        } else {
            Ok(())
        }
    }
}

impl<'a> Pages<'a> {
    pub(crate) fn new(client: &'a Client, path: &'a [&'a str], query: &'a [Parameter<'a>]) -> Self {
        let (read, progress) = (VecDeque::new(), Progress::default());
        Self { client, path, query, read, has_begun: false, next: None, progress }
    }

    /// The next item; `None` at the end of the list.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        loop {
            if let Some(item) = self.read.pop_front() {
                let item = T::deserialize(item);
                return item.map(Some).map_err(|error| ClientError::setting("item", "", &error));
            }
            if self.has_begun && self.next.is_none() {
                return Ok(None);
            }
            let mut query = self.query.to_vec();
            query.extend([("limit", Some(PAGE_SIZE)), ("page", self.next.as_deref())]);
            let page: Page = self.client.get(self.path, &query).await?;
            let progress = self.progress.add(&page);
            progress.map_err(|reason| {
                let url = self.client.url_of(self.path, self.query);
                ClientError::unreadable(&url, StatusCode::OK, &reason)
            })?;
            self.read = page.data;
            (self.has_begun, self.next) = (true, page.next_page);
        }
    }

    pub async fn take<T: DeserializeOwned>(&mut self, limit: usize) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while items.len() < limit {
            match self.next().await? {
                Some(item) => items.push(item),
                None => break,
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(items: usize, next: Option<usize>) -> Page {
        Page { data: vec![Value::Null; items].into(), next_page: next.map(|next| next.to_string()) }
    }

    #[test]
    fn list_ends_where_a_page_is_named_again_or_after_very_many_or_empty_ones() {
        let mut progress = Progress::default();
        for next in 0..100 {
            progress.add(&page(1, Some(next))).unwrap();
        }
        progress.add(&page(1, None)).unwrap();
        let error = progress.add(&page(1, Some(40))).unwrap_err();
        assert!(error.contains("second time"), "{error}");
        let mut progress = Progress::default();
        let ended = (0..=MAX_PAGES).position(|next| progress.add(&page(1, Some(next))).is_err());
        assert_eq!(ended, Some(MAX_PAGES));
        // Empty pages count in a row.
        let mut progress = Progress::default();
        let empty = |count: usize| std::iter::repeat_n(0, count);
        let mut sizes = empty(MAX_EMPTY_PAGES).chain([1]).chain(empty(MAX_EMPTY_PAGES + 1)).zip(0..);
        let ended =
            sizes.find_map(|(items, next)| Some((next, progress.add(&page(items, Some(next))).err()?)));
        assert_eq!(ended, Some((2 * MAX_EMPTY_PAGES + 1, "the list has no end")));
    }
}
