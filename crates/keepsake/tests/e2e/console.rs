//! The web console, over plain HTTP. `tests/browser` uses it as people do; here is what it
//! refuses, and what a browser does not show.

mod actions;
mod archives;
pub(crate) mod browser;
mod defences;
mod history;
mod issuer;
mod pages;
mod sign_in;

use self::browser::{Browser, Page, console_on};
use crate::prelude::*;

/// `console_on` SQLite, and the tenant's first store.
async fn store_in_console() -> (Deployment, Tenant, Server, Store, Browser) {
    let (deployment, tenant, server, browser) = console_on(Pair::Sqlite).await;
    let store = Store::of(&server.client(&tenant), &tenant);
    (deployment, tenant, server, store, browser)
}
