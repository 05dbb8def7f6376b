//! `keepsake memory log`, `diff`, `restore`, `redact` and `readers`

use std::collections::HashMap;
use std::fmt::Write as _;

use clap::Args;
use console::Style;
use jiff::Timestamp;
use keepsake_client::Query;
use keepsake_config::{Failure, cli::Result};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::connection::Connection;
use super::memories::{PathArgs, find, last_deleted, missing_at};
use super::names::put_names;
use super::{agent_path, api_path, confirm, failure_of, put_agent_paths, text_of};
use crate::cli::{IdsArgs, StoreArgs, shell_word};
use crate::ids::{MEMORY, VERSION};
use crate::output::{
    Actor, Aside, Author, Bytes, Column, Count, Printer, Stream, Text, Time, actor_id, items_of, notice,
    printable,
};

const NOT_LISTED: &str = "the versions cannot be listed";
const VERSIONS: [&str; 1] = ["memory_versions"];
const READERS: [Column; 8] = [
    ("READER", "/actor", Actor),
    ("SESSION", "/session_id", Text),
    ("WHERE", "/surface", Text),
    ("TIMES", "/count", Count),
    ("FIRST", "/first_read_at", Time),
    ("LAST", "/last_read_at", Time),
    ("VERSION", "/memory_version_id", Text),
    ("PATH", "/path", Aside),
];

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The memory's path, as agents see it, also of a deleted memory; without it, the whole store
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// The memory's id, also of a deleted one: mem_…
    #[arg(long, value_name = "ID", conflicts_with = "path", value_parser = |given: &str| MEMORY.parse(given))]
    memory: Option<String>,
    /// Number of versions
    #[arg(short = 'n', long, value_name = "N", default_value = "20")]
    limit: usize,
    #[command(flatten)]
    ids: IdsArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory diff notes.md                what the last change changed
  keepsake memory diff notes.md memver_…       what changed since that version
  keepsake memory diff notes.md memver_… memver_…")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    memory: PathArgs,
    /// The older version: memver_… [default: the one before the newer]
    #[arg(value_name = "FROM", value_parser = |given: &str| VERSION.parse(given))]
    from: Option<String>,
    /// The newer version: memver_… [default: the current one, or the deletion]
    #[arg(value_name = "TO", value_parser = |given: &str| VERSION.parse(given))]
    to: Option<String>,
    #[command(flatten)]
    ids: IdsArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory restore notes.md        brings a deleted memory back
  keepsake memory restore memver_…        writes this version of a memory back")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The version: memver_…; or the path of a deleted memory, as agents see it
    #[arg(value_name = "VERSION|PATH")]
    version: String,
}

#[derive(Debug, Args)]
pub(crate) struct RedactArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The version: memver_…
    #[arg(value_name = "VERSION", value_parser = |given: &str| VERSION.parse(given))]
    version: String,
    /// Does not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory readers notes.md     readers of every version of the memory
  keepsake memory readers memver_…     readers of one version")]
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

pub(super) async fn log(args: LogArgs) -> Result<()> {
    let path = args.path.as_deref().map(api_path).transpose()?;
    let connection = Connection::of_store(&args.store).await?;
    let memory_id = match path {
        Some(path) => Some(memory_at(&connection, &path).await?),
        None => match args.memory {
            Some(memory) => {
                Some(MEMORY.find(&connection.client, &connection.path(&VERSIONS), &[], &memory).await?)
            }
            None => None,
        },
    };
    let query = [("memory_id", memory_id.as_deref())];
    let mut versions = connection.first(NOT_LISTED, &VERSIONS, &query, args.limit).await?;
    let mut has_moved = false;
    if connection.printer.is_table() {
        has_moved = mark_moved(&mut versions);
        put_agent_paths(&mut versions);
    }
    put_names(&connection, args.ids, &mut versions, &["/created_by"]).await;
    let mut columns = vec![
        ("VERSION", "/id", Text),
        // Without separators, as `--at-seq` takes it.
        ("SEQ", "/seq", Aside),
        ("TIME", "/created_at", Time),
        ("CHANGE", "/operation", Text),
        ("SIZE", "/content_size_bytes", Bytes),
        ("BY", "/created_by", Author),
        ("PATH", "/path", Text),
    ];
    if has_moved {
        columns.push(("BEFORE", "/previous_path", Aside));
    }
    connection.printer.first(&versions, args.limit, &columns, "there are no versions")
}

/// Adds the previous path to each version that moved its memory, if the version before is listed,
/// too; returns whether there is one.
fn mark_moved(versions: &mut [Value]) -> bool {
    let mut last = HashMap::new();
    let mut has_moved = false;
    for version in versions.iter_mut().rev() {
        let older: Option<Value> = last.insert(text_of(version, "memory_id").to_owned(), version.clone());
        let Some(older) = older.filter(|older| older["path"] != version["path"]) else { continue };
        let (Some(before), true) = (older["path"].as_str(), version["path"].is_string()) else { continue };
        if version["content_sha256"] == older["content_sha256"] {
            version["operation"] = "renamed".into();
        }
        version["previous_path"] = agent_path(before).into();
        has_moved = true;
    }
    has_moved
}

/// The id of the memory at a path or, if there is none, of the one that was deleted there last.
async fn memory_at(connection: &Connection, path: &str) -> Result<String> {
    if let Some(memory) = find(connection, path, "basic").await? {
        return Ok(text_of(&memory, "id").to_owned());
    }
    match last_deleted(connection, path).await? {
        Some(deleted) => Ok(text_of(&deleted, "memory_id").to_owned()),
        None => Err(missing_at(connection, path).await),
    }
}

pub(super) async fn diff(args: DiffArgs) -> Result<()> {
    let path = api_path(&args.memory.path)?;
    let connection = Connection::of_store(&args.memory.store).await?;
    let memory_id = memory_at(&connection, &path).await?;
    let of_memory = [("memory_id", Some(memory_id.as_str()))];
    let newer = match args.to {
        Some(version) => find_version(&connection, &of_memory, &version).await?,
        None => newest(&connection, &memory_id).await?,
    };
    let older = match args.from {
        Some(version) => Some(find_version(&connection, &of_memory, &version).await?),
        None => previous(&connection, &memory_id, &newer).await?,
    };
    let newer = version(&connection, Some(&memory_id), &newer).await?;
    let older = match older {
        Some(older) => Some(version(&connection, Some(&memory_id), &older).await?),
        None => None,
    };
    let result = json!({ "from": older, "to": newer });
    let mut shown = [older, Some(newer)].map(Option::unwrap_or_default);
    put_names(&connection, args.ids, &mut shown, &["/created_by"]).await;
    let [older, newer] = shown;
    if !older.is_null() && older["content"] == newer["content"] {
        let [before, after] = [&older, &newer].map(|version| agent_path(text_of(version, "path")));
        notice(&if before == after {
            format!("both versions of {after} have the same content")
        } else {
            format!("{before} was moved to {after}, with the same content")
        });
    }
    connection.printer.done_styled(&result, || {
        let titles = [&older, &newer].map(title);
        let texts = [&older, &newer].map(|version| text_of(version, "content"));
        let [older, newer] = [0, 1].map(|side: usize| TitledText { title: &titles[side], text: texts[side] });
        unified_diff(Stream::Stdout, older, newer)
    })
}

/// The line above a version's text; of no version before the first.
fn title(version: &Value) -> String {
    if version.is_null() {
        return "/dev/null".to_owned();
    }
    let author =
        version["created_by"].as_str().map_or_else(|| actor_id(&version["created_by"]), str::to_owned);
    format!("{}  {}  {author}", agent_path(text_of(version, "path")), text_of(version, "id"))
}

/// The id of the version that begins so, among those of the store or of a memory.
async fn find_version(connection: &Connection, of_memory: Query<'_>, beginning: &str) -> Result<String> {
    VERSION.find(&connection.client, &connection.path(&VERSIONS), of_memory, beginning).await
}

/// The newest version of a memory, which is the deletion if it was deleted.
async fn newest(connection: &Connection, memory_id: &str) -> Result<String> {
    let query = [("memory_id", Some(memory_id)), ("limit", Some("1"))];
    let page = connection.get(NOT_LISTED, &VERSIONS, &query).await?;
    let newest = items_of(&page, "data").first();
    newest
        .map(|version| text_of(version, "id").to_owned())
        .ok_or_else(|| Failure::not_found("there are no versions"))
}

/// The version of the memory before another one; `None` if that is the first.
async fn previous(connection: &Connection, memory_id: &str, version_id: &str) -> Result<Option<String>> {
    let (path, query) = (connection.path(&VERSIONS), [("memory_id", Some(memory_id))]);
    // Newest first: the search stops at the version before.
    let mut versions = connection.client.pages(&path, &query);
    while let Some(version) = versions.next::<Value>().await.map_err(failure_of(NOT_LISTED))? {
        if version["id"] == version_id {
            let before = versions.next::<Value>().await.map_err(failure_of(NOT_LISTED))?;
            return Ok(before.map(|before| text_of(&before, "id").to_owned()));
        }
    }
    Ok(None)
}

/// The version that begins so, with its content.
pub(super) async fn version_that_begins(connection: &Connection, beginning: &str) -> Result<Value> {
    let id = find_version(connection, &[], beginning).await?;
    let found = version(connection, None, &id).await?;
    if found["content"].is_null() {
        return Err(Failure::not_found(format!("{id} is the deletion of a memory: it has no content")));
    }
    Ok(found)
}

/// A version with its content; another memory's is refused if a memory is given.
async fn version(connection: &Connection, memory_id: Option<&str>, id: &str) -> Result<Value> {
    let (failed, view) = (format!("{id} cannot be read"), [("view", Some("full"))]);
    let found = connection.get(failed, &["memory_versions", id], &view).await?;
    if memory_id.is_some_and(|memory_id| found["memory_id"] != memory_id) {
        return Err(Failure::usage(format!("{id} is a version of another memory")));
    }
    if !found["redacted_at"].is_null() {
        return Err(Failure::conflict(format!("{id} was redacted: its content is gone")));
    }
    Ok(found)
}

#[derive(Clone, Copy)]
pub(super) struct TitledText<'a> {
    pub(super) title: &'a str,
    pub(super) text: &'a str,
}

/// The differences between two texts for this stream, in colour where the terminal has
/// any.
pub(super) fn unified_diff(stream: Stream, older: TitledText<'_>, newer: TitledText<'_>) -> String {
    let diff = TextDiff::from_lines(older.text, newer.text);
    if diff.ratio() >= 1.0 {
        return String::new();
    }
    let bold = Style::new().bold();
    let mut text = format!(
        "{}\n{}\n",
        bold.apply_to(format_args!("--- {}", printable(older.title))),
        bold.apply_to(format_args!("+++ {}", printable(newer.title)))
    );
    for hunk in diff.unified_diff().iter_hunks() {
        let _ = writeln!(text, "{}", Style::new().cyan().apply_to(hunk.header()));
        for change in hunk.iter_changes() {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ("-", Style::new().red()),
                ChangeTag::Insert => ("+", Style::new().green()),
                ChangeTag::Equal => (" ", Style::new()),
            };
            let line = stream.shown(change.value().trim_end_matches(['\n', '\r']));
            let _ = writeln!(text, "{}", style.apply_to(format_args!("{sign}{line}")));
            if change.missing_newline() {
                text.push_str("\\ No newline at end of file\n");
            }
        }
    }
    text
}

/// The id of the version to restore: the given one, or the last one of the memory that was deleted
/// at a path.
async fn restorable(connection: &Connection, given: &str) -> Result<String> {
    if let Some(beginning) = VERSION.beginning(given) {
        return find_version(connection, &[], beginning).await;
    }
    let path = api_path(given)?;
    if find(connection, &path, "basic").await?.is_some() {
        return Err(Failure::conflict(format!(
            "{0} exists: `keepsake memory log {1}` lists its versions, and `keepsake memory restore memver_…` writes one back",
            agent_path(&path),
            shell_word(&agent_path(&path))
        )));
    }
    match last_deleted(connection, &path).await? {
        Some(deleted) => Ok(text_of(&deleted, "memory_version_id").to_owned()),
        None => Err(missing_at(connection, &path).await),
    }
}

pub(super) async fn restore(args: RestoreArgs) -> Result<()> {
    let connection = Connection::of_store(&args.store).await?;
    let version = restorable(&connection, &args.version).await?;
    let (failed, path) = (format!("{version} was not restored"), ["memory_versions", &version, "restore"]);
    let restored = connection.post(failed, &path, json!({})).await?;
    connection
        .printer
        .done(&restored, || format!("restored {} from {version}\n", agent_path(text_of(&restored, "path"))))
}

pub(super) async fn redact(args: RedactArgs) -> Result<()> {
    let connection = Connection::of_store(&args.store).await?;
    let version = find_version(&connection, &[], &args.version).await?;
    let mut what = version.clone();
    if !args.yes {
        // A credential may redact a version that it may not read.
        let found = connection.get("", &["memory_versions", &version], &[]).await.unwrap_or_default();
        if let Some(path) = found["path"].as_str() {
            what = format!("{version}, of {}", agent_path(path));
        }
    }
    confirm(&format!("Remove the content and the path of {what}, permanently?"), args.yes)?;
    let (failed, path) = (format!("{version} was not redacted"), ["memory_versions", &version, "redact"]);
    let redacted = connection.post(failed, &path, json!({})).await?;
    connection.printer.done(&redacted, || {
        let mut text = format!("redacted {version}\n");
        for other in items_of(&redacted, "content_also_in").iter().filter_map(Value::as_str) {
            let _ = writeln!(text, "the same content is also in {other}");
        }
        text
    })
}

/// Lists who was shown a memory or a version.
pub(super) async fn readers(args: ReadersArgs) -> Result<()> {
    let beginning = VERSION.beginning(&args.memory);
    let path = if beginning.is_none() { Some(api_path(&args.memory)?) } else { None };
    let connection = Connection::of_store(&args.store).await?;
    let version = match beginning {
        Some(beginning) => Some(find_version(&connection, &[], beginning).await?),
        None => None,
    };
    let memory_id = match path {
        Some(path) => Some(memory_at(&connection, &path).await?),
        None => None,
    };
    let limit = args.limit.to_string();
    let query = [
        ("memory_version_id", version.as_deref()),
        ("memory_id", memory_id.as_deref()),
        ("limit", Some(limit.as_str())),
        ("page", args.page.as_deref()),
    ];
    let mut readers = connection.get("the readers cannot be listed", &["readers"], &query).await?;
    if !connection.printer.is_table() {
        return connection.printer.page(&readers, &READERS, "");
    }
    let shown = readers["data"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
    put_agent_paths(shown);
    put_names(&connection, args.ids, shown, &["/actor", "/session_id"]).await;
    connection.printer.page(&readers, &READERS, "nobody was shown it")?;
    let through = text_of(&readers, "complete_through");
    match readers["complete_from"].as_str() {
        Some(from) => {
            let seconds = |time: &str| time.parse::<Timestamp>().ok().map(Timestamp::as_second);
            let has_just_begun =
                seconds(from).zip(seconds(through)).is_some_and(|(from, through)| through - from < 60);
            // Times are shown relative to the moment at which the printer is made.
            let printer = Printer::new(args.store.connection.output.output);
            let [from, through] = [from, through].map(|time| printer.relative(time));
            notice(&if has_just_begun {
                format!("complete for less than a minute, through {through}; earlier reads may be missing")
            } else {
                format!("complete from {from} through {through}")
            });
        }
        None => notice("the memory store records no reads"),
    }
    Ok(())
}
