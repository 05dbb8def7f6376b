//! The server, the credential and the store of a command.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::{Duration, Instant};

use keepsake_client::{Client, ClientError, Query, server_url};
use keepsake_config::{Failure, cli::Result};
use keepsake_core::{Purpose, StoreId};
use parking_lot::Mutex;
use serde_json::Value;

use super::{failure_of, text_of};
use crate::cli::{ConnectionArgs, ServerArgs, StoreArgs};
use crate::contexts::{self, Context, Contexts};
use crate::failures::of_client;
use crate::ids::{STORE, several_named};
use crate::output::{Printer, counted, notice};
use crate::store_api::StoreApi;

/// The API of a server. Its failures begin with what failed, and have the class that
/// decides the exit code.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) printer: Printer,
    /// The store that all paths are below; `None`: they are those of the API.
    pub(super) store_id: Option<String>,
}

impl Connection {
    pub(super) fn open(args: &ConnectionArgs) -> Result<Self> {
        let (client, _) = connect(&args.server)?;
        let client = client.reading_for(Purpose::Person);
        Ok(Self { client, printer: Printer::new(args.output.output), store_id: None })
    }

    /// As [`open_store`].
    pub(super) async fn of_store(args: &StoreArgs) -> Result<Self> {
        Self::of_store_named(&args.connection, args.named.store.as_deref()).await
    }

    /// As [`open_store`], for a store that is not given by `--store`.
    pub(super) async fn of_store_named(args: &ConnectionArgs, store: Option<&str>) -> Result<Self> {
        let StoreApi { client, id } = open_store_named(args, store).await?;
        Ok(Self { client, printer: Printer::new(args.output.output), store_id: Some(id) })
    }

    /// `None`: the connection is that of no store.
    pub(super) fn store(&self) -> Option<StoreApi> {
        Some(StoreApi { client: self.client.clone(), id: self.store_id.clone()? })
    }

    pub(super) fn path<'a>(&'a self, below: &[&'a str]) -> Vec<&'a str> {
        match &self.store_id {
            Some(store_id) => [&["memory_stores", store_id.as_str()], below].concat(),
            None => below.to_vec(),
        }
    }

    pub(super) async fn get(&self, failed: impl Display, path: &[&str], query: Query<'_>) -> Result<Value> {
        self.client.get(&self.path(path), query).await.map_err(failure_of(failed))
    }

    /// All items of a list, or the first `limit`.
    pub(super) async fn list(
        &self,
        failed: impl Display,
        path: &[&str],
        query: Query<'_>,
        limit: usize,
    ) -> Result<Vec<Value>> {
        self.client.pages(&self.path(path), query).take(limit).await.map_err(failure_of(failed))
    }

    /// The items of a list for [`Printer::first`].
    pub(super) async fn first(
        &self,
        failed: impl Display,
        path: &[&str],
        query: Query<'_>,
        limit: usize,
    ) -> Result<Vec<Value>> {
        self.list(failed, path, query, limit.saturating_add(1)).await
    }

    pub(super) async fn post(&self, failed: impl Display, path: &[&str], body: Value) -> Result<Value> {
        self.client.post(&self.path(path), &body).await.map_err(failure_of(failed))
    }

    pub(super) async fn delete(
        &self,
        failed: impl Display,
        path: &[&str],
        query: Query<'_>,
    ) -> Result<Value> {
        self.client.delete(&self.path(path), query).await.map_err(failure_of(failed))
    }
}

/// As [`connect_quietly`]; the client prints why it waits.
pub(crate) fn connect(args: &ServerArgs) -> Result<(Client, Option<String>)> {
    let (client, store) = connect_quietly(args)?;
    Ok((client.telling_waits(tell_wait), store))
}

/// Prints why a call waits. Prints one line for calls that wait at the same time.
fn tell_wait(error: &ClientError, wait: Duration) {
    static TOLD_UNTIL: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    {
        let mut told_until = TOLD_UNTIL.lock();
        if told_until.is_some_and(|until| now < until) {
            return;
        }
        *told_until = Some(now + wait);
    }
    notice(&format!("{error}; trying again in {}", counted(wait.as_secs(), "second")));
}

/// A client of the server that arguments, variables and contexts name, in this order,
/// and the store of the context.
pub(crate) fn connect_quietly(args: &ServerArgs) -> Result<(Client, Option<String>)> {
    let needs_context = args.context.is_some() || args.url.is_none() || args.api_key.is_none();
    let contexts = match contexts::default_file() {
        Ok(path) => Contexts::read(&path),
        Err(_) if !needs_context => Ok(Contexts::default()),
        Err(failure) => Err(failure),
    };
    let contexts = match contexts {
        Err(failure) if !needs_context => {
            notice(&format!("{failure}; the command does not need it"));
            Contexts::default()
        }
        read => read?,
    };
    let context = match contexts.find(args.context.as_deref()) {
        Err(_) if !needs_context => None,
        found => found?.map(|(_, context)| context),
    };
    let (url, api_key) = credential(args, context)?;
    let store =
        context.filter(|context| is_same_server(&context.url, url)).and_then(|context| context.store.clone());
    let client = Client::new(url, &api_key.into()).map_err(of_client)?;
    Ok((client, store))
}

/// Finds the store of a command.
///
/// Without a store in the arguments, in a variable or in the context, it is the only
/// store that the credential may read.
pub(crate) async fn open_store(args: &StoreArgs) -> Result<StoreApi> {
    open_store_named(&args.connection, args.named.store.as_deref()).await
}

async fn open_store_named(args: &ConnectionArgs, store: Option<&str>) -> Result<StoreApi> {
    let (client, of_context) = connect(&args.server)?;
    store_of(client, store.map(str::to_owned).or(of_context)).await
}

/// The named store, or the only one that the credential may read.
pub(crate) async fn store_of(client: Client, named: Option<String>) -> Result<StoreApi> {
    let client = client.reading_for(Purpose::Person);
    let id = match named {
        Some(store) => find_store(&client, &store).await?,
        None => only_store(&client).await?,
    };
    Ok(StoreApi { client, id })
}

/// The URL and the API key. The key of a context is sent to its own server only.
fn credential<'a>(args: &'a ServerArgs, context: Option<&'a Context>) -> Result<(&'a str, &'a str)> {
    let url = args.url.as_deref().or(context.map(|context| context.url.as_str()));
    let url = url.ok_or_else(|| {
        Failure::usage(
            "no server is known: `keepsake login URL` remembers one, --url or KEEPSAKE_URL names one, \
             and `keepsake serve --dev` starts one",
        )
    })?;
    server_url(url).map_err(of_client)?;
    let key_of_context =
        context.filter(|context| is_same_server(&context.url, url)).map(|context| context.api_key.as_str());
    let api_key = args.api_key.as_deref().or(key_of_context);
    let api_key = api_key.ok_or_else(|| {
        Failure::usage(format!(
            "no API key is known for {url}: set KEEPSAKE_API_KEY, or `keepsake login {url}`"
        ))
    })?;
    if api_key.is_empty() {
        return Err(Failure::usage(
            "the API key is empty: set KEEPSAKE_API_KEY, or unset it to use that of a context",
        ));
    }
    Ok((url, api_key))
}

pub(crate) fn is_same_server(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The id of the store with this name, or of the only one whose id begins so. Fails if there are
/// several.
pub(crate) async fn find_store(client: &Client, store: &str) -> Result<String> {
    if store.parse::<StoreId>().is_ok() {
        return Ok(store.to_owned());
    }
    let stores = named_stores(client).await.map_err(failure_of("the stores cannot be listed"))?;
    find_among(&stores, store)
}

pub(super) async fn named_stores(client: &Client) -> Result<Vec<(String, String)>, ClientError> {
    let archived = [("include_archived", Some("true"))];
    let stores = client.pages(&["memory_stores"], &archived).take::<Value>(usize::MAX).await?;
    let named = |store: &Value| (text_of(store, "id").to_owned(), text_of(store, "name").to_owned());
    Ok(stores.iter().map(named).collect())
}

/// As [`find_store`], among stores with these ids and names.
pub(super) fn find_among(stores: &[(String, String)], given: &str) -> Result<String> {
    if given.parse::<StoreId>().is_ok() {
        return Ok(given.to_owned());
    }
    let named: Vec<_> = stores.iter().filter(|(_, name)| name == given).map(|(id, _)| id).collect();
    match named.as_slice() {
        [] => {}
        [id] => return Ok((*id).clone()),
        several => return Err(Failure::usage(several_named("memory stores", given, several))),
    }
    let begins = |id: &&String| STORE.beginning(given).is_some_and(|beginning| id.starts_with(beginning));
    let begun: BTreeSet<_> = stores.iter().map(|(id, _)| id).filter(begins).cloned().collect();
    if !begun.is_empty() {
        return STORE.only(&begun, given);
    }
    Err(Failure::not_found(format!(
        "no memory store has the id or the name `{given}`; `keepsake store list` shows all, and `keepsake store create` makes one"
    )))
}

/// The id of the only store that the credential may read.
async fn only_store(client: &Client) -> Result<String> {
    let mut stores = client.pages(&["memory_stores"], &[]);
    let found = stores.take::<Value>(2).await.map_err(failure_of("the stores cannot be listed"))?;
    match found.as_slice() {
        [store] => Ok(text_of(store, "id").to_owned()),
        [] => Err(Failure::not_found("there is no memory store: `keepsake store create NAME` creates one")),
        _ => Err(Failure::usage(
            "there are several memory stores: --store or KEEPSAKE_STORE names one, and `keepsake store list` shows all",
        )),
    }
}
