//! `keepsake tenant …`

use std::io::{BufRead, IsTerminal};

use keepsake_config::Failure;
use keepsake_core::TenantId;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::target::{call, with_query};
use super::{output, print, print_json};
use crate::cli::{CreateTenantArgs, PageArgs, TargetArgs, TenantArgs, TenantCommand, UpdateTenantArgs};

/// Runs a `tenant` command.
///
/// # Errors
/// [`Failure`] of the request.
pub(crate) async fn run(command: TenantCommand) -> Result<(), Failure> {
    match command {
        TenantCommand::List(args) => {
            let called = ("external_id", args.external_id);
            let path = page_of("/tenants", &args.page, &[called]);
            list(
                args.target,
                "the tenants cannot be listed",
                &path,
                &["id", "status", "name", "external_id"],
            )
            .await
        }
        TenantCommand::Get(args) => show(args, "").await,
        TenantCommand::Create(args) => create(args).await,
        TenantCommand::Update(args) => update(args).await,
        TenantCommand::Suspend(args) => change(args, "suspend", "suspended").await,
        TenantCommand::Resume(args) => change(args, "resume", "resumed").await,
        TenantCommand::Delete(args) => {
            confirm(args.tenant, args.yes)?;
            delete(args.target, args.tenant).await
        }
        TenantCommand::Deletion(args) => {
            let path = format!("/tenant_deletions/{}", args.tenant);
            let json = args.target.json;
            let found = call(
                args.target,
                "the deletion cannot be shown",
                Method::GET,
                &path,
                None,
            )
            .await?;
            show_object(&found, json)
        }
        TenantCommand::Usage(args) => show(args, "/usage").await,
        TenantCommand::Audit(args) => {
            let path = match args.tenant {
                Some(tenant) => format!("/tenants/{tenant}/audit"),
                None => "/audit".to_owned(),
            };
            let path = page_of(&path, &args.page, &[]);
            list(
                args.target,
                "the audit cannot be listed",
                &path,
                &["at", "actor", "action", "object_id"],
            )
            .await
        }
    }
}

async fn create(args: CreateTenantArgs) -> Result<(), Failure> {
    let json = args.target.json;
    let body = json!({
        "name": args.name,
        "external_id": args.external_id,
        "limits": limits(args.limits),
    });
    let made = call(
        args.target,
        "the tenant was not created",
        Method::POST,
        "/tenants",
        Some(body),
    )
    .await?;
    print_object(&made, json, |id| format!("created the tenant {id}\n"))
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
    let (json, path) = (args.target.json, format!("/tenants/{}", args.tenant));
    let changed = call(
        args.target,
        "the tenant was not changed",
        Method::PATCH,
        &path,
        Some(body.into()),
    )
    .await?;
    print_object(&changed, json, |id| format!("changed the tenant {id}\n"))
}

async fn change(args: TenantArgs, action: &str, done: &str) -> Result<(), Failure> {
    let (json, path) = (args.target.json, format!("/tenants/{}/{action}", args.tenant));
    let what_failed = format!("the tenant was not {done}");
    let changed = call(args.target, &what_failed, Method::POST, &path, None).await?;
    print_object(&changed, json, |id| format!("{done} the tenant {id}\n"))
}

async fn delete(target: TargetArgs, tenant: TenantId) -> Result<(), Failure> {
    let (json, path) = (target.json, format!("/tenants/{tenant}"));
    let begun = call(target, "the tenant was not deleted", Method::DELETE, &path, None).await?;
    print_object(&begun, json, |id| {
        format!("the tenant {id} is being deleted; `keepsake tenant deletion {id}` shows the progress\n")
    })
}

/// Asks the user to type the tenant's id, unless `--yes` was given.
fn confirm(tenant: TenantId, is_sure: bool) -> Result<(), Failure> {
    if is_sure {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        eprint!("This permanently deletes {tenant} and all its data. Type its id to continue: ");
    }
    let mut typed = String::new();
    stdin
        .lock()
        .read_line(&mut typed)
        .map_err(Failure::of("the confirmation cannot be read"))?;
    if typed.trim() == tenant.to_string() {
        return Ok(());
    }
    Err(Failure::new("not deleted: type the tenant's id, or give --yes"))
}

async fn show(args: TenantArgs, what: &str) -> Result<(), Failure> {
    let (json, path) = (args.target.json, format!("/tenants/{}{what}", args.tenant));
    let found = call(
        args.target,
        "the tenant cannot be shown",
        Method::GET,
        &path,
        None,
    )
    .await?;
    show_object(&found, json)
}

fn limits(limits: Vec<(String, u64)>) -> Map<String, Value> {
    limits
        .into_iter()
        .map(|(name, value)| (name, Value::from(value)))
        .collect()
}

/// The path of one page of a list.
pub(super) fn page_of(path: &str, page: &PageArgs, more: &[(&str, Option<String>)]) -> String {
    let mut parameters = more.to_vec();
    parameters.push(("limit", page.limit.map(|limit| limit.to_string())));
    parameters.push(("page", page.page.clone()));
    with_query(path, &parameters)
}

pub(super) async fn list(
    target: TargetArgs,
    what_failed: &str,
    path: &str,
    columns: &[&str],
) -> Result<(), Failure> {
    let json = target.json;
    let found = call(target, what_failed, Method::GET, path, None).await?;
    if json {
        print_json(&found)
    } else {
        print(&output::rows(&found, columns))
    }
}

fn show_object(object: &Value, json: bool) -> Result<(), Failure> {
    if json {
        print_json(object)
    } else {
        print(&output::fields(object))
    }
}

/// Prints a created or changed object as JSON, or a sentence about it.
pub(super) fn print_object(
    object: &Value,
    json: bool,
    sentence: impl FnOnce(&str) -> String,
) -> Result<(), Failure> {
    if json {
        return print_json(object);
    }
    print(&sentence(object["id"].as_str().unwrap_or_default()))
}
