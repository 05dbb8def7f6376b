//! `keepsake key …`

use std::time::Duration;

use keepsake_config::Failure;
use keepsake_core::Timestamp;
use keepsake_engine::{Clock, SystemClock};
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::json;

use super::target::call;
use super::tenants::{list, page_of, print_object};
use super::{print, print_json};
use crate::cli::{CreateKeyArgs, KeyCommand, RevokeKeyArgs};

const DAY: Duration = Duration::from_hours(24);
/// The default scopes of a key, which an agent needs.
const DEFAULT_SCOPES: [Scope; 2] = [Scope::MemoryRead, Scope::MemoryWrite];
/// The columns of a list of keys.
const COLUMNS: [&str; 6] = ["id", "name", "scopes", "created_at", "expires_at", "revoked_at"];

/// Runs a `key` command.
///
/// # Errors
/// [`Failure`] of the request.
pub(crate) async fn run(command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::List(args) => {
            let path = page_of(&format!("/tenants/{}/api_keys", args.tenant), &args.page, &[]);
            list(args.target, "the API keys cannot be listed", &path, &COLUMNS).await
        }
        KeyCommand::Create(args) => create(args).await,
        KeyCommand::Revoke(args) => revoke(args).await,
    }
}

/// Creates an API key and prints its secret, once.
async fn create(args: CreateKeyArgs) -> Result<(), Failure> {
    let scopes = if args.scopes.is_empty() {
        DEFAULT_SCOPES.to_vec()
    } else {
        args.scopes
    };
    let expires_at = args
        .expires_in_days
        .map(|days| SystemClock.now().plus(DAY * days));
    let body = json!({
        "name": args.name,
        "scopes": scopes,
        "memory_store_ids": (!args.stores.is_empty()).then_some(args.stores),
        "expires_at": expires_at.map(Timestamp::to_rfc3339),
    });
    let (json, path) = (args.target.json, format!("/tenants/{}/api_keys", args.tenant));
    let made = call(
        args.target,
        "the API key was not created",
        Method::POST,
        &path,
        Some(body),
    )
    .await?;
    if json {
        return print_json(&made);
    }
    print(&format!(
        "created the API key {} for {}; this is its secret, which is not shown again:\n\n{}\n",
        made["id"].as_str().unwrap_or_default(),
        args.tenant,
        made["api_key"].as_str().unwrap_or_default(),
    ))
}

async fn revoke(args: RevokeKeyArgs) -> Result<(), Failure> {
    let json = args.target.json;
    let path = format!("/tenants/{}/api_keys/{}/revoke", args.tenant, args.key);
    let revoked = call(
        args.target,
        "the API key was not revoked",
        Method::POST,
        &path,
        None,
    )
    .await?;
    print_object(&revoked, json, |id| format!("revoked the API key {id}\n"))
}
