//! `keepsake erase` and `keepsake erasure …`

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use keepsake_config::{Failure, cli::Result};
use serde_json::{Map, Value, json};

use super::connection::{Connection, find_store};
use super::stores::parse_pair;
use super::{api_folder, confirm, text_of};
use crate::cli::{ConnectionArgs, example, given};
use crate::ids::ERASURE;
use crate::output::{Bytes, Column, Count, Text, Time, bytes, counted, notice, printable};

/// How often an erasure is asked whether it is done.
const POLLED_EACH: Duration = Duration::from_secs(1);
const COLUMNS: [Column; 6] = [
    ("ID", "/id", Text),
    ("STATE", "/state", Text),
    ("SELECTED BY", "/selected_by", Text),
    ("MEMORIES", "/removed/memories", Count),
    ("CREATED", "/created_at", Time),
    ("ENDED", "/ended_at", Time),
];
const FIELDS: [Column; 14] = [
    ("id", "/id", Text),
    ("state", "/state", Text),
    ("selected by", "/selected_by", Text),
    ("memory stores", "/memory_store_ids", Text),
    ("created", "/created_at", Time),
    ("ended", "/ended_at", Time),
    ("stores removed", "/removed/memory_stores", Count),
    ("memories removed", "/removed/memories", Count),
    ("versions removed", "/removed/memory_versions", Count),
    ("size removed", "/removed/content_bytes", Bytes),
    ("blobs removed", "/removed/blobs", Count),
    ("object versions", "/object_versions", Text),
    ("last error", "/error", Text),
    ("backups", "/backups", Text),
];

#[derive(Debug, Args)]
#[command(after_help = "\
Needs the scope tenant:admin. The command ends when everything is erased; an erasure goes on without it.

Examples:
  keepsake erase notes                         a memory store, completely
  keepsake erase notes --under people/ada      what a folder has or ever had
  keepsake erase --metadata person=ada         all stores with this metadata")]
pub(crate) struct EraseArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The memory store: its id or its name
    #[arg(value_name = "STORE", required_unless_present = "metadata", conflicts_with = "metadata")]
    store: Option<String>,
    /// Only memories that ever had a path in this folder, as agents see it; the store stays
    #[arg(long, value_name = "FOLDER", requires = "store", value_parser = NonEmptyStringValueParser::new())]
    under: Option<String>,
    /// All memory stores with this metadata; with several pairs, those that have all of them
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
    /// Does not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ErasureCommand {
    /// Lists the erasures, newest first
    #[command(visible_alias = "ls", after_help = example("keepsake erasure list"))]
    List {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Number of erasures
        #[arg(short = 'n', long, value_name = "N", default_value = "50")]
        limit: usize,
    },
    /// Shows what an erasure removed, and when
    #[command(after_help = example("keepsake erasure show erasure_… -o json > receipt.json"))]
    Show {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The erasure: erasure_…
        #[arg(value_name = "ID", value_parser = |given: &str| ERASURE.parse(given))]
        erasure: String,
    },
}

pub(crate) async fn run(command: ErasureCommand) -> Result<()> {
    match command {
        ErasureCommand::List { connection, limit } => {
            let connection = Connection::open(&connection)?;
            let failed = "the erasures cannot be listed";
            let mut erasures = connection.first(failed, &["erasures"], &[], limit).await?;
            if connection.printer.is_table() {
                erasures.iter_mut().for_each(put_words);
            }
            connection.printer.first(&erasures, limit, &COLUMNS, "nothing was erased")
        }
        ErasureCommand::Show { connection, erasure } => {
            let connection = Connection::open(&connection)?;
            let id = ERASURE.find(&connection.client, &["erasures"], &[], &erasure).await?;
            let mut erasure = connection.get("the erasure cannot be shown", &["erasures", &id], &[]).await?;
            if connection.printer.is_table() {
                put_words(&mut erasure);
            }
            connection.printer.object(&erasure, &FIELDS)
        }
    }
}

/// Says in words what selected the memories.
fn put_words(erasure: &mut Value) {
    let words = match text_of(erasure, "selected_by") {
        "memory_store" => "memory store",
        "path_prefix" => "folder",
        "store_metadata" => "metadata",
        _ => return,
    };
    erasure["selected_by"] = words.into();
}

/// Asks, and waits until everything is erased.
pub(crate) async fn erase(args: EraseArgs) -> Result<()> {
    let connection = Connection::open(&args.connection)?;
    let failed = "nothing was erased";
    let mut what = String::new();
    let mut store_id = None;
    if let Some(store) = &args.store {
        let id = find_store(&connection.client, store).await?;
        what = format!("the memory store {}", printable(&id));
        if !args.yes {
            // A credential may erase a store that it may not read.
            let found = connection.get("", &["memory_stores", &id], &[]).await.unwrap_or_default();
            if let Some(name) = found["name"].as_str() {
                what = format!("the memory store {} ({})", printable(name), printable(&id));
            }
        }
        store_id = Some(id);
    }
    let under = args.under.as_deref().map(api_folder).transpose()?;
    if let Some(under) = &under {
        what = format!("every memory of {what} that was ever in {}", printable(under));
    }
    let metadata: Map<String, Value> =
        args.metadata.into_iter().map(|(key, value)| (key, value.into())).collect();
    if !metadata.is_empty() {
        what = format!("all memory stores with the metadata {}", printable(&json!(metadata).to_string()));
    }
    confirm(&format!("Erase {what}, with all versions, permanently?"), args.yes)?;
    let body = given(json!({
        "memory_store_id": store_id,
        "path_prefix": under,
        "store_metadata": (!metadata.is_empty()).then_some(metadata),
    }));
    let mut erasure = connection.post(failed, &["erasures"], body).await?;
    let id = text_of(&erasure, "id").to_owned();
    while matches!(text_of(&erasure, "state"), "pending" | "running") {
        let removed = erasure["removed"]["memories"].as_u64().unwrap_or_default();
        notice(&format!("{} is under way: {removed} memories are erased", printable(&id)));
        tokio::time::sleep(POLLED_EACH).await;
        erasure = connection.get("the erasure cannot be read", &["erasures", &id], &[]).await?;
    }
    if text_of(&erasure, "state") != "done" {
        return Err(Failure::new(format!(
            "{} has a state that this command does not know: `keepsake erasure show` shows it",
            printable(&id)
        )));
    }
    connection.printer.done(&erasure, || sentence(&erasure))?;
    notice("backups, exports and copies of clients are outside, and keep what they have");
    Ok(())
}

fn sentence(erasure: &Value) -> String {
    let removed = |field: &str| erasure["removed"][field].as_u64().unwrap_or_default();
    let stores = match removed("memory_stores") {
        0 => String::new(),
        stores => format!("{}, ", counted(stores, "memory store")),
    };
    format!(
        "erased {stores}{}, {} of {}; the receipt is {}\n",
        counted(removed("memories"), "memory"),
        counted(removed("memory_versions"), "version"),
        bytes(removed("content_bytes")),
        printable(text_of(erasure, "id")),
    )
}
