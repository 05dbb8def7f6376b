//! `keepsake tenant …`

use keepsake_client::Method;
use keepsake_config::Failure;
use serde_json::{Map, Value, json};

use super::target::{Request, call, id_of, list, show};
use crate::cli::{
    AuditArgs, CreateTenantArgs, DeleteTenantArgs, ListTenantsArgs, TenantArgs, TenantCommand,
    UpdateTenantArgs,
};
use crate::output::{Bytes, Column, Count, Limits, Text, Time, confirm, limit, print};

const COLUMNS: [Column; 5] = [
    ("ID", "/id", Text),
    ("STATUS", "/status", Text),
    ("NAME", "/name", Text),
    ("EXTERNAL ID", "/external_id", Text),
    ("CREATED", "/created_at", Time),
];
const FIELDS: [Column; 6] = [
    ("id", "/id", Text),
    ("name", "/name", Text),
    ("external id", "/external_id", Text),
    ("status", "/status", Text),
    ("limits", "/limits", Limits),
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
const AUDIT: [Column; 4] = [
    ("TIME", "/at", Time),
    ("ACTOR", "/actor", Text),
    ("ACTION", "/action", Text),
    ("OBJECT", "/object_id", Text),
];

pub(crate) async fn run(command: TenantCommand) -> Result<(), Failure> {
    match command {
        TenantCommand::List(args) => list_tenants(args).await,
        TenantCommand::Get(args) => {
            let path = ["tenants", &args.tenant.to_string()];
            show(args.target, "the tenant cannot be shown", &path, &FIELDS).await
        }
        TenantCommand::Create(args) => create(args).await,
        TenantCommand::Update(args) => update(args).await,
        TenantCommand::Suspend(args) => change(args, "suspend", "suspended").await,
        TenantCommand::Resume(args) => change(args, "resume", "resumed").await,
        TenantCommand::Delete(args) => delete(args).await,
        TenantCommand::Deletion(args) => {
            let path = ["tenant_deletions", &args.tenant.to_string()];
            show(args.target, "the deletion cannot be shown", &path, &DELETION).await
        }
        TenantCommand::Usage(args) => usage(args).await,
        TenantCommand::Audit(args) => audit(args).await,
    }
}

async fn list_tenants(args: ListTenantsArgs) -> Result<(), Failure> {
    let filters = [("external_id", args.external_id.as_deref())];
    let shown = (&COLUMNS[..], "there is no tenant: `keepsake tenant create` makes one");
    let failed = "the tenants cannot be listed";
    list(args.target, failed, &["tenants"], &filters, args.page, shown).await
}

async fn create(args: CreateTenantArgs) -> Result<(), Failure> {
    let body = json!({
        "name": args.name,
        "external_id": args.external_id,
        "limits": limits(args.limits),
    });
    let request = Request::post(&["tenants"]).with(body);
    let (printer, made) = call(args.target, "the tenant was not created", request).await?;
    printer.done(&made, || format!("created the tenant {}\n", id_of(&made)))
}

async fn update(args: UpdateTenantArgs) -> Result<(), Failure> {
    let mut body = Map::new();
    if let Some(name) = args.name {
        body.insert("name".to_owned(), name.into());
    }
    if args.no_external_id {
        body.insert("external_id".to_owned(), Value::Null);
    }
    if let Some(external_id) = args.external_id {
        body.insert("external_id".to_owned(), external_id.into());
    }
    let mut limits = limits(args.limits);
    limits.extend(args.default_limits.into_iter().map(|name| (name, Value::Null)));
    if !limits.is_empty() {
        body.insert("limits".to_owned(), limits.into());
    }
    let path = ["tenants", &args.tenant.to_string()];
    let request = Request::new(Method::PATCH, &path).with(body.into());
    let (printer, changed) = call(args.target, "the tenant was not changed", request).await?;
    printer.done(&changed, || format!("changed the tenant {}\n", id_of(&changed)))
}

async fn change(args: TenantArgs, action: &str, done: &str) -> Result<(), Failure> {
    let path = ["tenants", &args.tenant.to_string(), action];
    let failed = format!("the tenant was not {done}");
    let (printer, changed) = call(args.target, &failed, Request::post(&path)).await?;
    printer.done(&changed, || format!("{done} the tenant {}\n", id_of(&changed)))
}

async fn delete(args: DeleteTenantArgs) -> Result<(), Failure> {
    let tenant = args.tenant.to_string();
    let question = format!("Delete the tenant {tenant} with all its data, permanently?");
    confirm(&question, args.yes)?;
    let path = ["tenants", &tenant];
    let request = Request::new(Method::DELETE, &path);
    let (printer, begun) = call(args.target, "the tenant was not deleted", request).await?;
    printer.done(&begun, || {
        format!(
            "the tenant {tenant} is being deleted; `keepsake tenant deletion {tenant}` shows the progress\n"
        )
    })
}

async fn usage(args: TenantArgs) -> Result<(), Failure> {
    let path = ["tenants", &args.tenant.to_string(), "usage"];
    let (printer, usage) = call(args.target, "the usage cannot be shown", Request::get(&path)).await?;
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

async fn audit(args: AuditArgs) -> Result<(), Failure> {
    let tenant = args.tenant.map(|tenant| tenant.to_string());
    let path = match &tenant {
        Some(tenant) => vec!["tenants", tenant, "audit"],
        None => vec!["audit"],
    };
    let shown = (&AUDIT[..], "the audit is empty");
    let failed = "the audit cannot be listed";
    list(args.target, failed, &path, &[], args.page, shown).await
}

fn limits(limits: Vec<(String, u64)>) -> Map<String, Value> {
    limits.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
}
