//! The pages of a list.

use std::collections::VecDeque;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Client, ClientError, Parameter};

/// Items per page, the server's maximum for items without content.
const PAGE_SIZE: &str = "100";

/// Reads a list page by page, as far as its items are taken.
#[derive(Debug)]
pub struct Pages<'a> {
    client: &'a Client,
    path: &'a [&'a str],
    query: &'a [Parameter<'a>],
    /// Items that were read and not taken yet.
    read: VecDeque<Value>,
    next: Next,
}

#[derive(Debug)]
enum Next {
    First,
    Page(String),
    None,
}

#[derive(Deserialize)]
struct Page {
    data: VecDeque<Value>,
    next_page: Option<String>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(client: &'a Client, path: &'a [&'a str], query: &'a [Parameter<'a>]) -> Self {
        let (read, next) = (VecDeque::new(), Next::First);
        Self {
            client,
            path,
            query,
            read,
            next,
        }
    }

    /// The next item; `None` at the end of the list.
    ///
    /// # Errors
    /// [`ClientError`] of the request, or if an item has another form.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            if let Some(item) = self.read.pop_front() {
                let item = T::deserialize(item);
                return item
                    .map(Some)
                    .map_err(|error| ClientError::setting("item", "", &error));
            }
            let page = match &self.next {
                Next::First => None,
                Next::Page(page) => Some(page.as_str()),
                Next::None => return Ok(None),
            };
            let mut query = self.query.to_vec();
            query.extend([("limit", Some(PAGE_SIZE)), ("page", page)]);
            let page: Page = self.client.get(self.path, &query).await?;
            self.read = page.data;
            self.next = page.next_page.map_or(Next::None, Next::Page);
        }
    }

    /// At most `limit` of the remaining items.
    ///
    /// # Errors
    /// As [`Pages::next`].
    pub async fn take<T: DeserializeOwned>(&mut self, limit: usize) -> Result<Vec<T>, ClientError> {
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
