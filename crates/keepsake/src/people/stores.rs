//! `keepsake store …`

use std::time::Duration;

use clap::{Args, Subcommand};
use keepsake_config::{SourceArgs, cli::Result};
use keepsake_core::policy::SensitiveDataPolicy;
use serde_json::{Map, Value, json};

use super::connection::{Connection, find_store, named_stores};
use super::undo::{ForkStoreArgs, RestoreStoreArgs, fork, restore};
use super::{agent_path, confirm, put_agent_paths, text_of};
use crate::cli::{
    ConnectionArgs, SearchModeArgs, choice, example, given, moment_text, parse_period, require_change,
};
use crate::operator;
use crate::output::{
    Bytes, Column, Count, Period, Printer, Text, Time, counted, items_of, named, notice, print, printable,
};

const COLUMNS: [Column; 5] = [
    ("ID", "/id", Text),
    ("NAME", "/name", Text),
    ("MEMORIES", "/memory_count", Count),
    ("SIZE", "/content_bytes", Bytes),
    ("CREATED", "/created_at", Time),
];

const FIELDS: [Column; 13] = [
    ("id", "/id", Text),
    ("name", "/name", Text),
    ("description", "/description", Text),
    ("metadata", "/metadata", Text),
    ("memories", "/memory_count", Count),
    ("size", "/content_bytes", Bytes),
    ("expires unused after", "/expires_unused_after", Period),
    ("sensitive data", "/sensitive_data_policy", Text),
    ("records reads", "/records_reads", Text),
    ("search mode", "/search_mode", Text),
    ("created", "/created_at", Time),
    ("updated", "/updated_at", Time),
    ("archived", "/archived_at", Time),
];

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Lists the memory stores, newest first
    #[command(visible_alias = "ls", after_help = example("keepsake store list --all"))]
    List {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Includes archived stores
        #[arg(short, long)]
        all: bool,
    },
    /// Shows a memory store
    #[command(after_help = example("keepsake store get notes"))]
    Get(ShowStoreArgs),
    /// Creates a memory store
    Create(CreateStoreArgs),
    /// Changes a memory store's name, description, metadata or policies
    #[command(after_help = example("keepsake store update notes --description 'What the support agents know'"))]
    Update(UpdateStoreArgs),
    /// Makes a memory store read-only, permanently
    #[command(after_help = example("keepsake store archive notes"))]
    Archive(SureStoreArgs),
    /// Deletes a memory store and its history, permanently
    #[command(visible_alias = "rm", after_help = example("keepsake store delete notes"))]
    Delete(SureStoreArgs),
    /// Shows a memory store's size, limits and largest memories
    #[command(after_help = example("keepsake store usage notes"))]
    Usage(ShowStoreArgs),
    /// Makes a memory store as it was at a time
    Restore(RestoreStoreArgs),
    /// Makes a memory store with the content of another one
    Fork(ForkStoreArgs),
    /// Shows what changed since a moment, or differs from another store
    Diff(DiffStoreArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake store create notes --description 'What the support agents know'
  keepsake store create tickets --metadata team=a --expires-unused-after 90d")]
pub(crate) struct CreateStoreArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The name, 1 to 255 characters
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    fields: StoreFields,
    #[command(flatten)]
    operator: OperatorStoreArgs,
}

/// The operator creates stores in the database, for any tenant.
#[derive(Debug, Args)]
#[command(next_help_heading = "Operator")]
pub(crate) struct OperatorStoreArgs {
    /// Creates the store in the configured database, for this tenant: its id, its name or its external id
    #[arg(long, value_name = "TENANT", conflicts_with_all = ["description", "metadata", "expires_unused_after", "sensitive_data", "records_reads", "search_mode"])]
    tenant: Option<String>,
    #[command(flatten)]
    sources: SourceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowStoreArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The memory store: its id or its name [default: the context's]
    #[arg(value_name = "STORE", env = "KEEPSAKE_STORE", hide_env = true)]
    store: Option<String>,
}

impl ShowStoreArgs {
    async fn open(&self) -> Result<Connection> {
        Connection::of_store_named(&self.connection, self.store.as_deref()).await
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake store diff notes --from 2026-11-20
  keepsake store diff notes --from-seq 120 --to-seq 150
  keepsake store diff notes --other notes-copy")]
pub(crate) struct DiffStoreArgs {
    #[command(flatten)]
    shown: ShowStoreArgs,
    /// The earlier moment: 2026-11-20 or 2026-11-20T09:00:00Z, or 2h, 3d or 1w ago [default: the
    /// oldest that can be shown; with --other, now]
    #[arg(long, value_name = "TIME", value_parser = moment_text)]
    from: Option<String>,
    /// The earlier moment, after the change with this sequence number
    #[arg(long, value_name = "N", conflicts_with = "from")]
    from_seq: Option<String>,
    /// The later moment, or that of the other store [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment_text)]
    to: Option<String>,
    /// The later moment, or that of the other store, after the change with this sequence number
    #[arg(long, value_name = "N", conflicts_with = "to")]
    to_seq: Option<String>,
    /// Another store, whose memories are compared by their paths: its id or its name
    #[arg(long, value_name = "STORE")]
    other: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateStoreArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The memory store: its id or its name
    #[arg(value_name = "STORE")]
    store: String,
    /// A new name, 1 to 255 characters
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    fields: StoreFields,
    /// A metadata key to remove; may be repeated
    #[arg(long, value_name = "KEY")]
    remove_metadata: Vec<String>,
}

const SENSITIVE_DATA: &[(&str, &str)] =
    &[("off", "It is stored"), ("redact", "It is replaced"), ("reject", "The write is refused")];

/// The fields that creating and updating share.
#[derive(Debug, Args)]
pub(crate) struct StoreFields {
    /// What the store is for; agents see it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// A key and a value; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
    /// Memories that nobody reads for this long are deleted: 90d, 12h, or `never`
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    expires_unused_after: Option<Duration>,
    /// What happens to secrets and personal data in new content
    #[arg(long, value_name = "POLICY", value_parser = choice(SensitiveDataPolicy::parse, SENSITIVE_DATA))]
    sensitive_data: Option<SensitiveDataPolicy>,
    /// Whether the server records who was shown which version: true or false
    #[arg(long, value_name = "BOOL")]
    records_reads: Option<bool>,
    #[command(flatten)]
    search_mode: SearchModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SureStoreArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The memory store: its id or its name
    #[arg(value_name = "STORE")]
    store: String,
    /// Does not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(command: StoreCommand) -> Result<()> {
    match command {
        StoreCommand::List { connection, all } => list(&connection, all).await,
        StoreCommand::Get(args) => show(args).await,
        StoreCommand::Create(args) => create(args).await,
        StoreCommand::Update(args) => update(args).await,
        StoreCommand::Archive(args) => archive(args).await,
        StoreCommand::Delete(args) => delete(args).await,
        StoreCommand::Usage(args) => usage(args).await,
        StoreCommand::Restore(args) => restore(args).await,
        StoreCommand::Fork(args) => fork(args).await,
        StoreCommand::Diff(args) => diff(args).await,
    }
}

async fn list(args: &ConnectionArgs, all: bool) -> Result<()> {
    let connection = Connection::open(args)?;
    let query = [("include_archived", all.then_some("true"))];
    let failed = "the memory stores cannot be listed";
    let stores = connection.list(failed, &["memory_stores"], &query, usize::MAX).await?;
    let mut columns = COLUMNS.to_vec();
    if all {
        columns.push(("ARCHIVED", "/archived_at", Time));
    }
    let none = "there is no memory store: `keepsake store create NAME` creates one";
    connection.printer.items(&stores, &columns, none)
}

async fn show(args: ShowStoreArgs) -> Result<()> {
    let connection = args.open().await?;
    let store = connection.get("the memory store cannot be shown", &[], &[]).await?;
    connection.printer.object(&store, &FIELDS)
}

async fn create(args: CreateStoreArgs) -> Result<()> {
    if let Some(tenant) = args.operator.tenant {
        args.connection.server.refuse_beside("--tenant")?;
        let printer = Printer::new(args.connection.output.output);
        return operator::create_store(args.operator.sources, &tenant, args.name, &printer).await;
    }
    let connection = Connection::open(&args.connection)?;
    let body = body_of(Some(&args.name), args.fields, &[]);
    let made = connection.post("the memory store was not created", &["memory_stores"], body).await?;
    connection.printer.done(&made, || sentence("created", &made))?;
    if connection.printer.is_table() && is_name_shared(&connection, text_of(&made, "name")).await {
        notice("another memory store has this name: commands then need its id instead");
    }
    Ok(())
}

/// `false` also if the credential may not list the stores.
async fn is_name_shared(connection: &Connection, name: &str) -> bool {
    let stores = named_stores(&connection.client).await.unwrap_or_default();
    stores.iter().filter(|(_, known)| known == name).count() > 1
}

async fn update(args: UpdateStoreArgs) -> Result<()> {
    let body = body_of(args.name.as_deref(), args.fields, &args.remove_metadata);
    require_change(&body, "keepsake store update")?;
    let connection = Connection::of_store_named(&args.connection, Some(&args.store)).await?;
    let changed = connection.post("the memory store was not changed", &[], body).await?;
    connection.printer.done(&changed, || sentence("changed", &changed))
}

async fn archive(args: SureStoreArgs) -> Result<()> {
    let connection = Connection::of_store_named(&args.connection, Some(&args.store)).await?;
    let failed = "the memory store was not archived";
    let store = connection.get(failed, &[], &[]).await?;
    let question =
        format!("Make the memory store {} read-only, permanently?", printable(text_of(&store, "name")));
    confirm(&question, args.yes)?;
    let archived = connection.post(failed, &["archive"], json!({})).await?;
    connection.printer.done(&archived, || sentence("archived", &archived))
}

async fn delete(args: SureStoreArgs) -> Result<()> {
    let connection = Connection::of_store_named(&args.connection, Some(&args.store)).await?;
    let failed = "the memory store was not deleted";
    let store = connection.get(failed, &[], &[]).await?;
    let question = format!(
        "Delete the memory store {} with {} and the whole history, permanently?",
        printable(text_of(&store, "name")),
        counted(store["memory_count"].as_u64().unwrap_or_default(), "memory")
    );
    confirm(&question, args.yes)?;
    let deleted = connection.delete(failed, &[], &[]).await?;
    connection.printer.done(&deleted, || sentence("deleted", &store))
}

async fn usage(args: ShowStoreArgs) -> Result<()> {
    let connection = args.open().await?;
    let usage = connection.get("the usage cannot be shown", &["usage"], &[]).await?;
    let fields = [
        ("memories", "/memory_count", Count),
        ("size", "/content_bytes", Bytes),
        ("versions", "/version_count", Count),
        ("size of versions", "/version_bytes", Bytes),
        ("searched by meaning", "/embedded_memory_count", Count),
        ("size of vectors", "/embedding_bytes", Bytes),
        ("expires unused after", "/expires_unused_after", Period),
        ("never read", "/never_read_count", Count),
    ];
    connection.printer.object(&usage, &fields)?;
    let mut next = items_of(&usage, "expiring_next").to_vec();
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
    put_agent_paths(&mut next);
    connection.printer.items(&next, &columns, "")
}

async fn diff(args: DiffStoreArgs) -> Result<()> {
    let connection = args.shown.open().await?;
    let other = match &args.other {
        Some(other) => Some(find_store(&connection.client, other).await?),
        None => None,
    };
    let query = [
        ("from", args.from.as_deref()),
        ("from_seq", args.from_seq.as_deref()),
        ("to", args.to.as_deref()),
        ("to_seq", args.to_seq.as_deref()),
        ("other_store_id", other.as_deref()),
    ];
    let failed = "the memory store cannot be compared";
    let mut differences = connection.list(failed, &["diff"], &query, usize::MAX).await?;
    if connection.printer.is_table() {
        put_agent_paths(&mut differences);
        for difference in &mut differences {
            if let Some(path) = difference["previous_path"].as_str() {
                difference["previous_path"] = agent_path(path).into();
            }
        }
    }
    let columns = [
        ("CHANGE", "/change", Text),
        ("+LINES", "/added_lines", Count),
        ("-LINES", "/removed_lines", Count),
        ("PATH", "/path", Text),
        ("BEFORE", "/previous_path", Text),
    ];
    connection.printer.items(&differences, &columns, "there are no differences")
}

/// The body of a request that creates or updates a store.
fn body_of(name: Option<&str>, fields: StoreFields, remove_metadata: &[String]) -> Value {
    let removed = remove_metadata.iter().map(|key| (key.clone(), Value::Null));
    let set = fields.metadata.into_iter().map(|(key, value)| (key, value.into()));
    let metadata: Map<_, _> = removed.chain(set).collect();
    let mut body = given(json!({
        "name": name,
        "description": fields.description,
        "metadata": (!metadata.is_empty()).then_some(metadata),
        "expires_unused_after": fields.expires_unused_after.map(|period| period.as_secs()),
        "sensitive_data_policy": fields.sensitive_data.map(SensitiveDataPolicy::name),
        "records_reads": fields.records_reads,
    }));
    fields.search_mode.set_in(&mut body);
    body
}

fn sentence(done: &str, store: &Value) -> String {
    format!("{done} the memory store {}\n", named(store))
}

pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("metadata is given as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
