//! `keepsake memory readers`

use clap::Args;
use keepsake_config::Failure;

use super::connection::Connection;
use super::history::find_version;
use super::names::put_names;
use super::{api_path, put_agent_paths, text_of};
use crate::cli::{IdsArgs, StoreArgs};
use crate::ids::VERSION;
use crate::output::{Actor, Column, Count, Text, Time, notice};

const COLUMNS: [Column; 8] = [
    ("READER", "/actor", Actor),
    ("SESSION", "/session_id", Text),
    ("WHERE", "/surface", Text),
    ("TIMES", "/count", Count),
    ("FIRST", "/first_read_at", Time),
    ("LAST", "/last_read_at", Time),
    ("VERSION", "/memory_version_id", Text),
    ("PATH", "/path", Text),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory readers notes.md             readers of every version of the memory
  keepsake memory readers memver_…             readers of one version")]
pub(crate) struct ReadersArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The memory, as agents see it, or a version: memver_…
    #[arg(value_name = "PATH|VERSION")]
    memory: String,
    /// Number of readers, 1 to 100
    #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
    /// Continues a list
    #[arg(long, value_name = "PAGE")]
    page: Option<String>,
    #[command(flatten)]
    ids: IdsArgs,
}

pub(super) async fn list(args: ReadersArgs) -> Result<(), Failure> {
    let beginning = VERSION.beginning(&args.memory);
    let path = if beginning.is_none() { Some(api_path(&args.memory)?) } else { None };
    let connection = Connection::of_store(&args.store).await?;
    let version = match beginning {
        Some(beginning) => Some(find_version(&connection, &[], beginning).await?),
        None => None,
    };
    let limit = args.limit.to_string();
    let query = [
        ("memory_version_id", version.as_deref()),
        ("path", path.as_deref()),
        ("limit", Some(limit.as_str())),
        ("page", args.page.as_deref()),
    ];
    let mut readers = connection.get("the readers cannot be listed", &["readers"], &query).await?;
    if !connection.printer.is_table() {
        return connection.printer.page(&readers, &COLUMNS, "");
    }
    let shown = readers["data"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
    put_agent_paths(shown);
    put_names(&connection, args.ids, shown, &["/actor", "/session_id"]).await;
    connection.printer.page(&readers, &COLUMNS, "nobody was shown it")?;
    let through = text_of(&readers, "complete_through");
    match readers["complete_from"].as_str() {
        Some(from) => {
            let [from, through] = [from, through].map(|time| connection.printer.relative(time));
            notice(&format!("complete from {from} through {through}"));
        }
        None => notice("the memory store records no reads"),
    }
    Ok(())
}
