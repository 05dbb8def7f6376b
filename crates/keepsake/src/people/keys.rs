//! `keepsake key …`: by a credential of the tenant, and by the operator.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use keepsake_client::{Method, Query};
use keepsake_config::cli::Result;
use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::{Clock, SystemClock};
use keepsake_index::Scope;
use serde_json::{Value, json};

use super::connection::{connect, find_among, find_store};
use super::{failure_of, text_of};
use crate::cli::{PageArgs, ServerArgs, TargetArgs};
use crate::ids::LIVE_API_KEY;
use crate::operator::target::{call, stores_of};
use crate::output::{Column, Printer, Text, Time, confirm, items_of, named, require_terminal};

const DAY: Duration = Duration::from_hours(24);
/// The default scopes of a key, which an agent needs.
const DEFAULT_SCOPES: [Scope; 2] = [Scope::MemoryRead, Scope::MemoryWrite];
const COLUMNS: [Column; 7] = [
    ("ID", "/id", Text),
    ("NAME", "/name", Text),
    ("SCOPES", "/scopes", Text),
    ("STORES", "/memory_store_ids", Text),
    ("CREATED", "/created_at", Time),
    ("EXPIRES", "/expires_at", Time),
    ("REVOKED", "/revoked_at", Time),
];

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Lists a tenant's API keys, newest first
    List(ListKeysArgs),
    /// Creates an API key and prints its secret, once
    Create(CreateKeyArgs),
    /// Revokes an API key permanently
    Revoke(RevokeKeyArgs),
}

/// Whose keys, and how they are reached.
#[derive(Debug, Clone, Args)]
struct KeysOf {
    #[command(flatten)]
    person: ServerArgs,
    #[command(flatten)]
    operator: OperatorKeysArgs,
}

/// The operator manages the keys of any tenant, in the database or at a server's operator
/// listener.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Operator")]
struct OperatorKeysArgs {
    /// The keys of this tenant, by the operator: a name, an external id or the beginning of an id [default: those of
    /// the credential's tenant]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
}

impl KeysOf {
    /// Sends a request to a path below the keys, which may begin with a live key's name or the beginning of an id. A
    /// failure begins with `failed`.
    async fn call(
        self,
        failed: &str,
        method: Method,
        below: &[&str],
        query: Query<'_>,
        body: Option<Value>,
    ) -> Result<(Printer, Value)> {
        let OperatorKeysArgs { tenant, target } = self.operator;
        let Some(tenant) = tenant else {
            target.refuse_without("--tenant")?;
            let printer = Printer::new(target.output.output);
            let (client, _) = connect(&self.person)?;
            let key;
            let mut path = vec!["api_keys"];
            if let [given, rest @ ..] = below {
                key = LIVE_API_KEY.find(&client, &["api_keys"], &[], given).await?;
                path.push(&key);
                path.extend(rest);
            }
            let answer = client.send(method, &path, query, body.as_ref()).await;
            return Ok((printer, answer.map_err(failure_of(failed))?));
        };
        self.person.refuse_beside("--tenant")?;
        let path = [&["tenants", &tenant, "api_keys"], below].concat();
        call(target, failed, method, &path, query, body).await
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key list
  keepsake key list --tenant wrkspc_… --config keepsake.toml")]
pub(crate) struct ListKeysArgs {
    #[command(flatten)]
    page: PageArgs,
    // Last: its heading would be that of what follows.
    #[command(flatten)]
    of: KeysOf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A credential needs the scope keys:admin, and gives a key only rights that it has.

Examples:
  keepsake key create --name reader --scope memory:read --expires-in-days 30
  keepsake key create --tenant wrkspc_… --name fleet --config keepsake.toml")]
pub(crate) struct CreateKeyArgs {
    /// A display name
    #[arg(long)]
    name: String,
    /// A scope of the key; may be repeated [default: memory:read and memory:write]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scopes())]
    scopes: Vec<Scope>,
    /// Limits the key to this store: its id or, without --server, its name; may be repeated
    #[arg(long = "store", value_name = "STORE")]
    stores: Vec<String>,
    /// The number of days until the key expires
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    expires_in_days: Option<u32>,
    // Last: its heading would be that of what follows.
    #[command(flatten)]
    of: KeysOf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake key revoke apikey_…
  keepsake key revoke --tenant wrkspc_… apikey_… --config keepsake.toml")]
pub(crate) struct RevokeKeyArgs {
    /// The key: its id or its name
    #[arg(value_name = "KEY")]
    key: String,
    /// Does not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    // Last: its heading would be that of what follows.
    #[command(flatten)]
    of: KeysOf,
}

/// A parser whose help lists the scopes.
fn scopes() -> impl TypedValueParser<Value = Scope> {
    PossibleValuesParser::new(Scope::ALL.map(Scope::name)).try_map(|name| name.parse::<Scope>())
}

pub(crate) async fn run(command: KeyCommand) -> Result<()> {
    match command {
        KeyCommand::List(args) => {
            let limit = args.page.limit.map(|limit| limit.to_string());
            let query = [("limit", limit.as_deref()), ("page", args.page.page.as_deref())];
            let keys = args.of.call("the API keys cannot be listed", Method::GET, &[], &query, None);
            let (printer, keys) = Box::pin(keys).await?;
            printer.page(&keys, &COLUMNS, "there is no API key")
        }
        KeyCommand::Create(args) => Box::pin(create(args)).await,
        KeyCommand::Revoke(args) => Box::pin(revoke(args)).await,
    }
}

/// Creates an API key and prints its secret, once.
async fn create(args: CreateKeyArgs) -> Result<()> {
    let scopes = if args.scopes.is_empty() { DEFAULT_SCOPES.to_vec() } else { args.scopes };
    let expires_at = args.expires_in_days.map(|days| SystemClock.now().plus(DAY * days));
    let stores = whole_ids(&args.of, args.stores).await?;
    let body = json!({
        "name": args.name,
        "scopes": scopes,
        "memory_store_ids": (!stores.is_empty()).then_some(stores),
        "expires_at": expires_at.map(Timestamp::to_rfc3339),
    });
    let failed = "the API key was not created";
    let (printer, made) = args.of.call(failed, Method::POST, &[], &[], Some(body)).await?;
    printer.done(&made, || {
        let scopes: Vec<_> = items_of(&made, "scopes").iter().filter_map(Value::as_str).collect();
        format!(
            "created the API key {} with {}; this is its secret, which is not shown again:\n\n{}\n",
            named(&made),
            scopes.join(", "),
            text_of(&made, "api_key"),
        )
    })
}

/// The ids of stores that are given by names or beginnings of ids.
async fn whole_ids(of: &KeysOf, mut stores: Vec<String>) -> Result<Vec<String>> {
    if stores.iter().all(|store| store.parse::<StoreId>().is_ok()) {
        return Ok(stores);
    }
    if let Some(tenant) = &of.operator.tenant {
        let known = stores_of(of.operator.target.clone(), tenant).await?;
        return stores.iter().map(|store| find_among(&known, store)).collect();
    }
    let (client, _) = connect(&of.person)?;
    for store in &mut stores {
        *store = find_store(&client, store).await?;
    }
    Ok(stores)
}

async fn revoke(args: RevokeKeyArgs) -> Result<()> {
    let failed = "the API key was not revoked";
    let mut key = args.key;
    if !args.yes {
        require_terminal()?;
        // The question names the key that a name or the beginning of an id means.
        let (_, found) = args.of.clone().call(failed, Method::GET, &[&key], &[], None).await?;
        text_of(&found, "id").clone_into(&mut key);
        confirm(&format!("Revoke the API key {}, permanently?", named(&found)), false)?;
    }
    let (printer, revoked) = args.of.call(failed, Method::POST, &[&key, "revoke"], &[], None).await?;
    printer.done(&revoked, || format!("revoked the API key {}\n", named(&revoked)))
}
