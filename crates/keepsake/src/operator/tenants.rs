//! `keepsake tenant …`

use clap::{Args, Subcommand};
use keepsake_client::Method;
use keepsake_config::{Failure, cli::Result};
use keepsake_core::{Actor, words};
use keepsake_index::{Auditor, action_words, changes_words};
use serde_json::{Map, Value, json};

use super::target::{OperatorApi, call, list, show, with_api};
use crate::cli::{IdsArgs, PageArgs, SearchModeArgs, TargetArgs, given, require_change};
use crate::names::Names;
use crate::output::{
    Action, Bytes, Column, Count, Limits, Printer, Text, Time, confirm, limit, named, notice, print,
    require_terminal, text_of,
};

const COLUMNS: [Column; 5] = [
    ("ID", "/id", Text),
    ("STATUS", "/status", Text),
    ("NAME", "/name", Text),
    ("EXTERNAL ID", "/external_id", Text),
    ("CREATED", "/created_at", Time),
];
const FIELDS: [Column; 7] = [
    ("id", "/id", Text),
    ("name", "/name", Text),
    ("external id", "/external_id", Text),
    ("status", "/status", Text),
    ("limits", "/limits", Limits),
    ("search mode", "/search_mode", Text),
    ("created", "/created_at", Time),
];
const USAGE: [Column; 10] = [
    ("id", "/id", Text),
    ("memory stores", "/memory_stores", Count),
    ("memories", "/memories", Count),
    ("size", "/content_bytes", Bytes),
    ("versions", "/memory_versions", Count),
    ("size of versions", "/version_bytes", Bytes),
    ("granted to stores", "/granted_bytes", Bytes),
    ("API keys", "/api_keys", Count),
    ("sessions", "/sessions", Count),
    ("size of sessions", "/session_bytes", Bytes),
];
const DELETION: [Column; 9] = [
    ("id", "/id", Text),
    ("status", "/status", Text),
    ("requested", "/requested_at", Time),
    ("settles", "/settles_at", Time),
    ("ended", "/ended_at", Time),
    ("rows removed", "/rows", Text),
    ("blobs removed", "/blobs", Count),
    ("size of blobs", "/blob_bytes", Bytes),
    ("object versions", "/object_versions", Text),
];
/// The table of one tenant's audit has no last column.
const AUDIT: [Column; 5] = [
    ("TIME", "/at", Time),
    ("ACTOR", "/actor", Text),
    ("ACTION", "/action", Action),
    ("OBJECT", "/object_id", Text),
    ("TENANT", "/tenant_id", Text),
];

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Lists tenants, newest first
    List(ListTenantsArgs),
    /// Shows a tenant
    #[command(after_help = "Examples:
  keepsake tenant get wrkspc_… --config keepsake.toml")]
    Get(TenantArgs),
    /// Creates a tenant
    Create(CreateTenantArgs),
    /// Changes a tenant's names, limits and search mode
    Update(UpdateTenantArgs),
    /// Suspends a tenant; its data is kept
    #[command(after_help = "Examples:
  keepsake tenant suspend wrkspc_… --config keepsake.toml")]
    Suspend(TenantArgs),
    /// Resumes a suspended tenant
    #[command(after_help = "Examples:
  keepsake tenant resume wrkspc_… --config keepsake.toml")]
    Resume(TenantArgs),
    /// Deletes a tenant and all its data permanently
    Delete(DeleteTenantArgs),
    /// Shows the progress of a tenant's deletion
    #[command(after_help = "Examples:
  keepsake tenant deletion wrkspc_… --config keepsake.toml")]
    Deletion(TenantArgs),
    /// Shows a tenant's usage and limits
    #[command(after_help = "Examples:
  keepsake tenant usage wrkspc_… --config keepsake.toml")]
    Usage(TenantArgs),
    /// Lists the audit of a tenant or of the operator, newest first
    Audit(AuditArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TenantArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The tenant: its id, its name or its external id
    #[arg(value_name = "TENANT")]
    tenant: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake tenant list --config keepsake.toml
  keepsake tenant list --server http://127.0.0.1:8081 --external-id acme -o json")]
pub(crate) struct ListTenantsArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Only the tenant with this external id
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = limits_after("Examples:
  keepsake tenant create --name acme --config keepsake.toml
  keepsake tenant create --name acme --limit memories_per_store=5000 -o json"))]
pub(crate) struct CreateTenantArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// A display name
    #[arg(long)]
    name: String,
    /// Your id for the tenant, unique
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// A limit that differs from the configured one; may be repeated
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = parse_limit)]
    limits: Vec<(String, u64)>,
    #[command(flatten)]
    search_mode: SearchModeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = limits_after("Examples:
  keepsake tenant update wrkspc_… --limit bytes_per_store=1GiB
  keepsake tenant update wrkspc_… --default-limit bytes_per_store"))]
pub(crate) struct UpdateTenantArgs {
    #[command(flatten)]
    of: TenantArgs,
    /// A display name
    #[arg(long)]
    name: Option<String>,
    /// Your id for the tenant, unique
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Removes your id for the tenant
    #[arg(long, conflicts_with = "external_id")]
    no_external_id: bool,
    /// A limit that differs from the configured one; may be repeated
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = parse_limit)]
    limits: Vec<(String, u64)>,
    /// A limit to reset to the configured one; may be repeated
    #[arg(long = "default-limit", value_name = "KEY", value_parser = |name: &str| check_limit(name).map(|()| name.to_owned()))]
    default_limits: Vec<String>,
    #[command(flatten)]
    search_mode: SearchModeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake tenant delete wrkspc_… --server http://127.0.0.1:8081
  keepsake tenant deletion wrkspc_… --server http://127.0.0.1:8081")]
pub(crate) struct DeleteTenantArgs {
    #[command(flatten)]
    of: TenantArgs,
    /// Does not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake tenant audit --config keepsake.toml
  keepsake tenant audit wrkspc_… --limit 100 -o jsonl")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    page: PageArgs,
    /// The tenant: its id, its name or its external id; without it, the operator's audit
    #[arg(value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    ids: IdsArgs,
}

pub(crate) async fn run(command: TenantCommand) -> Result<()> {
    match command {
        TenantCommand::List(args) => {
            let filters = [("external_id", args.external_id.as_deref())];
            let shown = (&COLUMNS[..], "there is no tenant: `keepsake tenant create` makes one");
            let failed = "the tenants cannot be listed";
            list(args.target, failed, &["tenants"], &filters, args.page, shown).await
        }
        TenantCommand::Get(args) => {
            let path = ["tenants", &args.tenant];
            show(args.target, "the tenant cannot be shown", &path, &FIELDS).await
        }
        TenantCommand::Create(args) => Box::pin(create(args)).await,
        TenantCommand::Update(args) => update(args).await,
        TenantCommand::Suspend(args) => change(args, "suspend", "suspended").await,
        TenantCommand::Resume(args) => change(args, "resume", "resumed").await,
        TenantCommand::Delete(args) => Box::pin(delete(args)).await,
        TenantCommand::Deletion(args) => {
            let path = ["tenant_deletions", &args.tenant];
            show(args.target, "the deletion cannot be shown", &path, &DELETION).await
        }
        TenantCommand::Usage(args) => usage(args).await,
        TenantCommand::Audit(args) => audit(args).await,
    }
}

async fn create(args: CreateTenantArgs) -> Result<()> {
    let mut body = json!({
        "name": args.name,
        "external_id": args.external_id,
        "limits": limits(args.limits),
    });
    args.search_mode.set_in(&mut body);
    let (failed, target) = ("the tenant was not created", args.target.clone());
    let (printer, made) = call(args.target, failed, Method::POST, &["tenants"], &[], Some(body)).await?;
    printer.done(&made, || format!("created the tenant {}\n", named(&made)))?;
    // Scripts, which may make many tenants, go by ids.
    if printer.is_table() {
        let search = async |api: &OperatorApi| api.namesake(&made).await;
        // The tenant is made, also if the others cannot be listed.
        if let Ok(Some(id)) = with_api(target, "the tenants cannot be listed", search).await {
            notice(&format!("another tenant has this name: {id}; commands then need an id instead"));
        }
    }
    Ok(())
}

async fn update(args: UpdateTenantArgs) -> Result<()> {
    let mut limits = limits(args.limits);
    limits.extend(args.default_limits.into_iter().map(|name| (name, Value::Null)));
    let mut body = given(json!({
        "name": args.name,
        "external_id": args.external_id,
        "limits": (!limits.is_empty()).then_some(limits),
    }));
    if args.no_external_id {
        body["external_id"] = Value::Null;
    }
    args.search_mode.set_in(&mut body);
    require_change(&body, "keepsake tenant update")?;
    let (failed, path) = ("the tenant was not changed", ["tenants", &args.of.tenant]);
    let (printer, changed) = call(args.of.target, failed, Method::PATCH, &path, &[], Some(body)).await?;
    printer.done(&changed, || format!("changed the tenant {}\n", named(&changed)))
}

async fn change(args: TenantArgs, action: &str, done: &str) -> Result<()> {
    let path = ["tenants", &args.tenant, action];
    let failed = format!("the tenant was not {done}");
    let (printer, changed) = call(args.target, &failed, Method::POST, &path, &[], None).await?;
    printer.done(&changed, || format!("{done} the tenant {}\n", named(&changed)))
}

async fn delete(args: DeleteTenantArgs) -> Result<()> {
    let failed = "the tenant was not deleted";
    let mut tenant = args.of.tenant;
    if !args.yes {
        require_terminal()?;
        // The question names the tenant that a name or the beginning of an id means.
        let path = ["tenants", tenant.as_str()];
        let (_, found) = call(args.of.target.clone(), failed, Method::GET, &path, &[], None).await?;
        text_of(&found, "id").clone_into(&mut tenant);
        confirm(&format!("Delete the tenant {} with all its data, permanently?", named(&found)), false)?;
    }
    let path = ["tenants", tenant.as_str()];
    let of_target = args.of.target.repeated();
    let (printer, begun) = call(args.of.target, failed, Method::DELETE, &path, &[], None).await?;
    let tenant = text_of(&begun, "id");
    printer.done(&begun, || {
        format!(
            "the tenant {tenant} is being deleted; `keepsake tenant deletion {tenant}{of_target}` shows the progress\n"
        )
    })
}

async fn usage(args: TenantArgs) -> Result<()> {
    let (failed, path) = ("the usage cannot be shown", ["tenants", &args.tenant, "usage"]);
    let (printer, usage) = call(args.target, failed, Method::GET, &path, &[], None).await?;
    printer.object(&usage, &USAGE)?;
    if !printer.is_table() {
        return Ok(());
    }
    let limits = usage["limits"].as_object().into_iter().flatten();
    let limits = limits.map(|(name, value)| {
        let value = limit(name, value.as_u64().unwrap_or_default());
        json!({"name": name, "value": value})
    });
    print("\n")?;
    let columns = [("LIMIT", "/name", Text), ("VALUE", "/value", Text)];
    printer.items(&limits.collect::<Vec<_>>(), &columns, "")
}

async fn audit(args: AuditArgs) -> Result<()> {
    let printer = Printer::new(args.target.output.output);
    let work = async |api: &OperatorApi| {
        let tenant = match &args.tenant {
            Some(given) => Some(api.find_tenant(given).await?),
            None => None,
        };
        let path = match &tenant {
            Some(tenant) => vec!["tenants", tenant, "audit"],
            None => vec!["audit"],
        };
        let mut entries = api.page(&path, &[], &args.page).await?;
        if printer.is_table() {
            put_changes(&mut entries);
            if !args.ids.ids {
                put_names(api, tenant.as_deref(), &mut entries).await;
            }
        }
        Ok::<_, Failure>(entries)
    };
    let entries = with_api(args.target, "the audit cannot be listed", work).await?;
    let columns = if args.tenant.is_some() { &AUDIT[..4] } else { &AUDIT[..] };
    printer.page(&entries, columns, "the audit is empty")
}

/// Adds to the actions in a page of an audit what they changed.
fn put_changes(entries: &mut Value) {
    for entry in entries["data"].as_array_mut().into_iter().flatten() {
        let (action, changes) = (entry["action"].as_str(), entry["changes"].as_object());
        let words = action
            .zip(changes)
            .map(|(action, changes)| format!("{}: {}", action_words(action), changes_words(changes)));
        if let Some(words) = words {
            entry["action"] = words.into();
        }
    }
}

/// Puts names in place of the ids of tenants in a page of an audit, and of keys in the audit of a tenant. Other
/// objects are the tenant's own: the operator has only their ids.
async fn put_names(api: &OperatorApi, tenant: Option<&str>, entries: &mut Value) {
    let Some(entries) = entries["data"].as_array_mut() else {
        return;
    };
    let actors: Vec<_> =
        entries.iter().map(|entry| entry["actor"].as_str().and_then(Auditor::parse)).collect();
    let acting = actors.iter().flatten().filter_map(Auditor::actor).map(Actor::id);
    let of_objects = entries.iter().flat_map(|entry| [&entry["object_id"], &entry["tenant_id"]]);
    let ids: Vec<String> = acting.chain(of_objects.filter_map(|id| id.as_str().map(str::to_owned))).collect();
    let get = async |list: &str, id: &str| {
        let path = match tenant {
            Some(tenant) if list == "api_keys" => vec!["tenants", tenant, list, id],
            _ => vec![list, id],
        };
        api.call(Method::GET, &path, &[], None).await.map_err(|failure| failure.class())
    };
    let lists: &[&str] = if tenant.is_some() { &["api_keys", "tenants"] } else { &["tenants"] };
    let names = Names::look_up(ids.iter().map(String::as_str).collect(), lists, &get).await;
    let name_of = |id: &str| names.of(id).unwrap_or(id).to_owned();
    for (entry, actor) in entries.iter_mut().zip(actors) {
        let actor = match actor {
            Some(Auditor::Operator) => "operator".to_owned(),
            Some(Auditor::OperatorCli) => "operator, by a command".to_owned(),
            Some(Auditor::Job) => "a job".to_owned(),
            // The kind, since a key may be called `operator`.
            Some(Auditor::Credential(actor)) => match &actor {
                Actor::ApiKey(id) => format!("API key {}", name_of(&id.to_string())),
                Actor::Session(id) => format!("session {id}"),
                Actor::User(subject) => format!("user {subject}"),
                Actor::ServiceAccount(subject) => format!("service account {subject}"),
                Actor::Imported(_, id) => format!("{id} (imported)"),
            },
            None => continue,
        };
        entry["actor"] = actor.into();
        for field in ["object_id", "tenant_id"] {
            if let Some(name) = entry[field].as_str().map(name_of) {
                entry[field] = name.into();
            }
        }
    }
}

fn limits(limits: Vec<(String, u64)>) -> Map<String, Value> {
    limits.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
}

fn limit_names() -> Vec<String> {
    let limits = serde_json::to_value(keepsake_core::Limits::default()).unwrap_or_default();
    let names = limits.as_object().into_iter().flatten().map(|(name, _)| name.clone());
    names.chain(["expires_unused_after".to_owned()]).collect()
}

/// Examples, and the names of all limits.
fn limits_after(examples: &str) -> String {
    let limits = limit_names().into_iter().map(|name| match words::limit_examples(&name) {
        "" => name,
        typed => format!("{name}, {typed}"),
    });
    format!("{examples}\n\nLimits:\n  {}", limits.collect::<Vec<_>>().join("\n  "))
}

fn parse_limit(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("a limit is given as KEY=VALUE")?;
    check_limit(name)?;
    let value = words::parse_limit(name, value.trim()).map_err(|rule| format!("{name} {rule}"))?;
    Ok((name.to_owned(), value))
}

fn check_limit(name: &str) -> Result<(), String> {
    let names = limit_names();
    if names.iter().any(|known| known == name) {
        return Ok(());
    }
    Err(format!("there is no limit of this name; the limits are {}", names.join(", ")))
}
