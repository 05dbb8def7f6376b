//! `keepsake store …`

use keepsake_config::Failure;
use serde_json::{Map, Value, json};

use super::connection::{Connection, StoreConnection};
use super::{confirm, failure_of};
use crate::cli::{
    CreateStoreArgs, ListStoresArgs, SensitiveData, ShowStoreArgs, StoreCommand, StoreFields, SureStoreArgs,
    UpdateStoreArgs,
};
use crate::operator;
use crate::output::{Bytes, Column, Count, Period, Text, Time, print, printable};

const COLUMNS: [Column; 5] = [
    ("ID", "/id", Text),
    ("NAME", "/name", Text),
    ("MEMORIES", "/memory_count", Count),
    ("SIZE", "/content_bytes", Bytes),
    ("CREATED", "/created_at", Time),
];

const FIELDS: [Column; 11] = [
    ("id", "/id", Text),
    ("name", "/name", Text),
    ("description", "/description", Text),
    ("metadata", "/metadata", Text),
    ("memories", "/memory_count", Count),
    ("size", "/content_bytes", Bytes),
    ("expires unused after", "/expires_unused_after", Period),
    ("sensitive data", "/sensitive_data_policy", Text),
    ("created", "/created_at", Time),
    ("updated", "/updated_at", Time),
    ("archived", "/archived_at", Time),
];

pub(crate) async fn run(command: StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::List(args) => list(args).await,
        StoreCommand::Get(args) => show(args).await,
        StoreCommand::Create(args) if args.operator.tenant.is_some() => operator::create_store(args).await,
        StoreCommand::Create(args) => create(args).await,
        StoreCommand::Update(args) => update(args).await,
        StoreCommand::Archive(args) => archive(args).await,
        StoreCommand::Delete(args) => delete(args).await,
        StoreCommand::Usage(args) => usage(args).await,
    }
}

async fn list(args: ListStoresArgs) -> Result<(), Failure> {
    let Connection { client, printer, .. } = Connection::open(&args.connection)?;
    let query = [("include_archived", args.all.then_some("true"))];
    let mut stores = client.pages(&["memory_stores"], &query);
    let stores = stores.take::<Value>(usize::MAX).await;
    let stores = stores.map_err(failure_of("the memory stores cannot be listed"))?;
    let mut columns = COLUMNS.to_vec();
    if args.all {
        columns.push(("ARCHIVED", "/archived_at", Time));
    }
    let none = "there is no memory store: `keepsake store create NAME` creates one";
    printer.items(&stores, &columns, none)
}

async fn show(args: ShowStoreArgs) -> Result<(), Failure> {
    let connection = StoreConnection::open_store(&args.connection, args.store.as_deref()).await?;
    let store = connection.client.get::<Value>(&connection.path(&[]), &[]).await;
    let store = store.map_err(failure_of("the memory store cannot be shown"))?;
    connection.printer.object(&store, &FIELDS)
}

async fn create(args: CreateStoreArgs) -> Result<(), Failure> {
    let Connection { client, printer, .. } = Connection::open(&args.connection)?;
    let mut body = body_of(args.fields, &[]);
    body.insert("name".to_owned(), args.name.into());
    let made = client.post::<Value>(&["memory_stores"], &body).await;
    let made = made.map_err(failure_of("the memory store was not created"))?;
    printer.done(&made, || sentence("created", &made))
}

async fn update(args: UpdateStoreArgs) -> Result<(), Failure> {
    let connection = StoreConnection::open_store(&args.connection, Some(&args.store)).await?;
    let mut body = body_of(args.fields, &args.remove_metadata);
    if let Some(name) = args.name {
        body.insert("name".to_owned(), name.into());
    }
    let changed = connection.client.post::<Value>(&connection.path(&[]), &body).await;
    let changed = changed.map_err(failure_of("the memory store was not changed"))?;
    connection.printer.done(&changed, || sentence("changed", &changed))
}

async fn archive(args: SureStoreArgs) -> Result<(), Failure> {
    let connection = StoreConnection::open_store(&args.connection, Some(&args.store)).await?;
    let question = format!("Make {} read-only, permanently?", connection.store_id);
    confirm(&question, args.yes)?;
    let archived = connection.client.post::<Value>(&connection.path(&["archive"]), &json!({})).await;
    let archived = archived.map_err(failure_of("the memory store was not archived"))?;
    connection.printer.done(&archived, || sentence("archived", &archived))
}

async fn delete(args: SureStoreArgs) -> Result<(), Failure> {
    let connection = StoreConnection::open_store(&args.connection, Some(&args.store)).await?;
    let store = connection.client.get::<Value>(&connection.path(&[]), &[]).await;
    let store = store.map_err(failure_of("the memory store was not deleted"))?;
    let question = format!(
        "Delete the memory store {} with {} memories and their history, permanently?",
        printable(store["name"].as_str().unwrap_or_default()),
        store["memory_count"]
    );
    confirm(&question, args.yes)?;
    let deleted = connection.client.delete::<Value>(&connection.path(&[]), &[]).await;
    let deleted = deleted.map_err(failure_of("the memory store was not deleted"))?;
    connection.printer.done(&deleted, || sentence("deleted", &store))
}

async fn usage(args: ShowStoreArgs) -> Result<(), Failure> {
    let connection = StoreConnection::open_store(&args.connection, args.store.as_deref()).await?;
    let usage = connection.client.get::<Value>(&connection.path(&["usage"]), &[]).await;
    let usage = usage.map_err(failure_of("the usage cannot be shown"))?;
    let fields = [
        ("memories", "/memory_count", Count),
        ("size", "/content_bytes", Bytes),
        ("versions", "/version_count", Count),
        ("size of versions", "/version_bytes", Bytes),
        ("expires unused after", "/expires_unused_after", Period),
        ("never read", "/never_read_count", Count),
    ];
    connection.printer.object(&usage, &fields)?;
    let next = usage["expiring_next"].as_array().map_or(&[][..], Vec::as_slice);
    if next.is_empty() || !connection.printer.is_table() {
        return Ok(());
    }
    let columns = [
        ("EXPIRES", "/expires_at", Time),
        ("READ", "/last_accessed_at", Time),
        ("SIZE", "/content_size_bytes", Bytes),
        ("PATH", "/path", Text),
    ];
    print("\n")?;
    connection.printer.items(next, &columns, "")
}

/// The body of a request that creates or updates a store.
fn body_of(fields: StoreFields, remove_metadata: &[String]) -> Map<String, Value> {
    let mut body = Map::new();
    if let Some(description) = fields.description {
        body.insert("description".to_owned(), description.into());
    }
    let removed = remove_metadata.iter().map(|key| (key.clone(), Value::Null));
    let set = fields.metadata.into_iter().map(|(key, value)| (key, value.into()));
    let metadata: Map<_, _> = removed.chain(set).collect();
    if !metadata.is_empty() {
        body.insert("metadata".to_owned(), metadata.into());
    }
    if let Some(period) = fields.expires_unused_after {
        body.insert("expires_unused_after".to_owned(), period.0.into());
    }
    if let Some(policy) = fields.sensitive_data {
        let policy = match policy {
            SensitiveData::Off => "off",
            SensitiveData::Redact => "redact",
            SensitiveData::Reject => "reject",
        };
        body.insert("sensitive_data_policy".to_owned(), policy.into());
    }
    body
}

fn sentence(done: &str, store: &Value) -> String {
    let text = |field: &str| printable(store[field].as_str().unwrap_or_default());
    format!("{done} the memory store {} ({})\n", text("name"), text("id"))
}
