//! `keepsake memory …`

mod listing;

use std::collections::HashSet;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use keepsake_archive::format::MAX_CONTENT_BYTES;
use keepsake_config::{Failure, FailureClass, cli::Result};
use keepsake_core::words;
use keepsake_engine::{Clock, SystemClock};
use serde_json::{Value, json};

use listing::LsArgs;

use super::connection::Connection;
use super::history::{DiffArgs, LogArgs, ReadersArgs, RedactArgs, RestoreArgs};
use super::search::SearchArgs;
use super::undo::OwnChanges;
use super::{AGENT_ROOT, agent_path, api_path, confirm, editor, history, search, text_of};
use crate::cli::{MomentArgs, StoreArgs, example, parse_period, shell_word};
use crate::failures::unreadable;
use crate::ids::VERSION;
use crate::open_folder::read_at_most;
use crate::output::{items_of, notice, print, printable};
use crate::signals::EndSignals;

/// The value of `expires_at` for no time.
const NEVER: &str = "never";

const PATH_HELP: &str = "The path, as agents see it: /memories/notes.md, or notes.md";

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Lists a directory
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    /// Prints memories, or versions of them
    #[command(
        visible_alias = "view",
        after_help = "Examples:
  keepsake memory cat notes.md
  keepsake memory cat notes.md --at 2026-11-20
  keepsake memory cat memver_…      a version that `keepsake memory log` lists"
    )]
    Cat(CatArgs),
    /// Creates a memory or replaces its content, from a file or stdin
    #[command(visible_alias = "write")]
    Put(PutArgs),
    /// Opens a memory in the editor, and saves it unless others changed it
    #[command(after_help = example("EDITOR='code --wait' keepsake memory edit notes.md"))]
    Edit(PathArgs),
    /// Moves or renames a memory or a directory
    #[command(visible_alias = "rename", after_help = example("keepsake memory mv notes.md archive/notes.md"))]
    Mv(MvArgs),
    /// Deletes memories; their history is kept for the retention
    #[command(
        visible_alias = "delete",
        after_help = "Examples:
  keepsake memory rm notes.md
  keepsake memory rm -r drafts --yes"
    )]
    Rm(RmArgs),
    /// Keeps a memory from expiring
    #[command(after_help = "Examples:
  keepsake memory pin rules.md
  keepsake memory pin rules.md --off")]
    Pin(PinArgs),
    /// Sets the time at which a memory expires, even if it is used
    Expire(ExpireArgs),
    /// Searches content and paths, the best match first
    Search(SearchArgs),
    /// Lists the versions of a memory or of the whole store, newest first
    #[command(after_help = "\
SEQ is the sequence number of a change, which --at-seq, --from-seq and --after-seq take; \
a narrow terminal leaves it out.

Examples:
  keepsake memory log notes.md
  keepsake memory log")]
    Log(LogArgs),
    /// Shows the differences between two versions
    Diff(DiffArgs),
    /// Writes an earlier version back as a new one, also of a deleted memory
    Restore(RestoreArgs),
    /// Removes the content and the path of a version, permanently
    #[command(after_help = example("keepsake memory redact memver_…"))]
    Redact(RedactArgs),
    /// Lists who was shown a memory or a version
    Readers(ReadersArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The paths, as agents see them, or versions: memver_…
    #[arg(value_name = "PATH|VERSION", required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    moment: MomentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(value_name = "PATH", help = PATH_HELP)]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory put notes.md notes.md
  date | keepsake memory put log/today.md --create-only
  keepsake memory put offer.md offer.md --expires-in 30d")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    memory: PathArgs,
    /// The file with the content; `-` or none: stdin
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Fails if the memory exists
    #[arg(long)]
    create_only: bool,
    /// Fails unless the current content has this SHA-256
    #[arg(long, value_name = "SHA256", conflicts_with = "create_only")]
    if_sha256: Option<String>,
    /// The memory expires after this time, even if it is used: 30d, 12h, or `never`
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    expires_in: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The memory or directory, as agents see it
    #[arg(value_name = "FROM")]
    from: String,
    /// The new path; for a memory also the directory, with a final /
    #[arg(value_name = "TO")]
    to: String,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The paths, as agents see them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<String>,
    /// Also deletes directories, with everything below
    #[arg(short, long)]
    recursive: bool,
    /// Does not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    #[command(flatten)]
    memory: PathArgs,
    /// Lets the memory expire again
    #[arg(long)]
    off: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory expire offer.md --in 30d
  keepsake memory expire offer.md --at 2026-12-31T00:00:00Z
  keepsake memory expire offer.md --never")]
pub(crate) struct ExpireArgs {
    #[command(flatten)]
    memory: PathArgs,
    #[command(flatten)]
    when: ExpiryTime,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ExpiryTime {
    /// After this time: 30d, 12h
    #[arg(long = "in", value_name = "TIME", value_parser = parse_period)]
    after: Option<Duration>,
    /// At this time, in RFC 3339 format: 2026-12-31 or 2026-12-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Removes the time; the period of the store still applies
    #[arg(long)]
    never: bool,
}

pub(crate) async fn run(command: MemoryCommand) -> Result<()> {
    match command {
        MemoryCommand::Ls(args) => listing::list(args).await,
        MemoryCommand::Cat(args) => cat(args).await,
        MemoryCommand::Put(args) => put(args).await,
        MemoryCommand::Edit(args) => editor::edit(args).await,
        MemoryCommand::Mv(args) => rename(args).await,
        MemoryCommand::Rm(args) => remove(args).await,
        MemoryCommand::Pin(args) => pin(args).await,
        MemoryCommand::Expire(args) => expire(args).await,
        MemoryCommand::Search(args) => search::search(args).await,
        MemoryCommand::Log(args) => history::log(args).await,
        MemoryCommand::Diff(args) => history::diff(args).await,
        MemoryCommand::Restore(args) => history::restore(args).await,
        MemoryCommand::Redact(args) => history::redact(args).await,
        MemoryCommand::Readers(args) => history::readers(args).await,
    }
}

/// Finds the live memory at a path of the API. With the view `full`, a missing or damaged
/// content is a failure, so that callers do not take it for an empty content.
pub(super) async fn find(connection: &Connection, path: &str, view: &str) -> Result<Option<Value>> {
    let failed = format!("{} cannot be read", agent_path(path));
    find_at(&failed, connection, path, view, &MomentArgs::default()).await
}

/// As [`find`], at a moment of the past; a failure begins with `failed`.
async fn find_at(
    failed: &str,
    connection: &Connection,
    path: &str,
    view: &str,
    moment: &MomentArgs,
) -> Result<Option<Value>> {
    let [at, at_seq] = moment.query();
    let query = [("path", Some(path)), ("view", Some(view)), at, at_seq];
    let found = connection.get(failed, &["memories"], &query).await?;
    let memory = items_of(&found, "data").first().cloned();
    match memory.as_ref().and_then(|memory| memory["content_error"]["message"].as_str()) {
        Some(lost) => Err(Failure::new(format!("{failed}: {lost}"))),
        None => Ok(memory),
    }
}

/// As [`find_at`]; a missing memory is a failure.
async fn get_at(connection: &Connection, path: &str, view: &str, moment: &MomentArgs) -> Result<Value> {
    let shown = agent_path(path);
    let failed = format!("{shown} cannot be read");
    if let Some(memory) = find_at(&failed, connection, path, view, moment).await? {
        return Ok(memory);
    }
    if moment.is_past() {
        return Err(Failure::not_found(format!("{shown}: there was no such memory then")));
    }
    let deleted = last_deleted(connection, path).await.ok().flatten().ok_or_else(|| missing(path))?;
    Err(Failure::not_found(format!(
        "{shown} was deleted {}; `keepsake memory restore {}` brings it back",
        connection.printer.relative(text_of(&deleted, "deleted_at")),
        shell_word(&shown)
    )))
}

fn missing(path: &str) -> Failure {
    let hint = match VERSION.beginning(path.trim_start_matches('/')) {
        Some(_) => {
            "; `keepsake memory cat VERSION`, `diff PATH VERSION` and `restore VERSION` take a version's id"
        }
        None => "",
    };
    Failure::not_found(format!("{}: there is no such memory{hint}", agent_path(path)))
}

/// The memory that was the last one deleted at a path, if it can be restored.
pub(super) async fn last_deleted(connection: &Connection, path: &str) -> Result<Option<Value>> {
    let failed = format!("{} cannot be read", agent_path(path));
    let deleted = connection.list(failed, &["memories", "deleted"], &[("path", Some(path))], 1).await?;
    Ok(deleted.into_iter().next())
}

async fn below(
    connection: &Connection,
    directory: &str,
    depth: &str,
    moment: &MomentArgs,
) -> Result<Vec<Value>> {
    let prefix = if directory == "/" { "/".to_owned() } else { format!("{directory}/") };
    let [at, at_seq] = moment.query();
    let query = [("path_prefix", Some(prefix.as_str())), ("depth", Some(depth)), at, at_seq];
    let failed = format!("{} cannot be listed", agent_path(directory));
    connection.list(failed, &["memories"], &query, usize::MAX).await
}

async fn cat(args: CatArgs) -> Result<()> {
    let paths: Vec<_> = args.paths.iter().map(|path| api_path(path)).collect::<Result<_, _>>()?;
    let beginnings: Vec<_> = args.paths.iter().map(|given| VERSION.beginning(given)).collect();
    if args.moment.is_past() && beginnings.iter().any(Option::is_some) {
        return Err(Failure::usage(
            "a version has the same content at any time: leave out --at and --at-seq",
        ));
    }
    let connection = Connection::of_store(&args.store).await?;
    let mut failed: Option<Failure> = None;
    for (path, beginning) in paths.iter().zip(beginnings) {
        let found = if let Some(beginning) = beginning {
            history::version_that_begins(&connection, beginning).await
        } else {
            let found = get_at(&connection, path, "full", &args.moment).await;
            named_if_directory(&connection, path, &args.moment, found).await
        };
        match found {
            Ok(printed) => connection.printer.done(&printed, || text_of(&printed, "content").to_owned())?,
            // The other memories may exist.
            Err(failure)
                if matches!(
                    failure.class(),
                    FailureClass::NotFound | FailureClass::Conflict | FailureClass::Failed
                ) =>
            {
                if let Some(earlier) = failed.replace(failure) {
                    notice(&earlier.to_string());
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Says of a path without a memory that it is a directory, if it is.
async fn named_if_directory(
    connection: &Connection,
    path: &str,
    moment: &MomentArgs,
    found: Result<Value>,
) -> Result<Value> {
    match found {
        Err(failure) if failure.class() == FailureClass::NotFound || path == "/" => {
            Err(directory_at(connection, path, moment).await.unwrap_or(failure))
        }
        found => found,
    }
}

/// The failure of a directory in the place of a memory; `None`: there is none.
async fn directory_at(connection: &Connection, path: &str, moment: &MomentArgs) -> Option<Failure> {
    let below = below(connection, path, "1", moment).await;
    if !below.is_ok_and(|below| !below.is_empty()) {
        return None;
    }
    let path = agent_path(path.trim_end_matches('/'));
    Some(Failure::not_found(format!(
        "{path} is a directory: `keepsake memory ls {}` lists it",
        shell_word(&path)
    )))
}

/// Refuses a path without a memory if it is a directory.
pub(super) async fn refuse_directory(connection: &Connection, path: &str) -> Result<()> {
    directory_at(connection, path, &MomentArgs::default()).await.map_or(Ok(()), Err)
}

/// As [`missing`], but says if the path is a directory.
pub(super) async fn missing_at(connection: &Connection, path: &str) -> Failure {
    directory_at(connection, path, &MomentArgs::default()).await.unwrap_or_else(|| missing(path))
}

async fn put(args: PutArgs) -> Result<()> {
    let path = api_path(&args.memory.path)?;
    let file = file_of(&args);
    let content = read_content(file)?;
    if file.is_some() || !std::io::stdin().is_terminal() {
        return put_content(args, &path, &content).await;
    }
    // From now on, a file keeps the typed text even if a signal ends the command.
    let put = match EndSignals::listen() {
        Ok(mut signals) => signals.or_end(put_content(args, &path, &content)).await,
        Err(failure) => Err(failure),
    };
    put.map_err(|failure| editor::keep_typed(&path, &content, failure))
}

async fn put_content(args: PutArgs, path: &str, content: &[u8]) -> Result<()> {
    let content = std::str::from_utf8(content)
        .map_err(|_| Failure::new(format!("{} is not UTF-8 text", name_of(file_of(&args)))))?;
    let expires_at = args.expires_in.map(time_after);
    let expires_at = expires_at.as_deref();
    let connection = Connection::of_store(&args.memory.store).await?;
    let existing = if args.create_only {
        None
    } else {
        find_at(&not_saved(path), &connection, path, "basic", &MomentArgs::default()).await?
    };
    match existing {
        Some(mut memory) => {
            if let Some(sha256) = args.if_sha256 {
                memory["content_sha256"] = sha256.into();
            }
            save(&connection, path, content, Some(&memory), expires_at).await
        }
        None if args.if_sha256.is_some() => Err(missing(path)),
        None => save(&connection, path, content, None, expires_at).await,
    }
}

fn hash_of(memory: &Value) -> &str {
    text_of(memory, "content_sha256")
}

fn not_saved(path: &str) -> String {
    format!("{} was not saved", agent_path(path))
}

/// Creates a memory, or replaces the content of one that still has the hash of `replaced`.
pub(super) async fn save(
    connection: &Connection,
    path: &str,
    content: &str,
    replaced: Option<&Value>,
    expires_at: Option<&str>,
) -> Result<()> {
    let failed = not_saved(path);
    let saved = match replaced {
        None => {
            let precondition = json!({"type": "not_exists"});
            let body = json!({
                "path": path, "content": content, "expires_at": expires_at, "precondition": precondition,
            });
            connection.post(failed, &["memories"], body).await?
        }
        Some(memory) => {
            let precondition = json!({"type": "content_sha256", "content_sha256": hash_of(memory)});
            let body = json!({ "content": content, "expires_at": expires_at, "precondition": precondition });
            connection.post(failed, &["memories", text_of(memory, "id")], body).await?
        }
    };
    let done = match replaced {
        None => "created",
        Some(memory) if hash_of(&saved) == hash_of(memory) => "unchanged:",
        Some(_) => "replaced",
    };
    connection.printer.done(&saved, || {
        let size = words::bytes(saved["content_size_bytes"].as_u64().unwrap_or_default());
        format!("{done} {} ({size})\n", agent_path(path))
    })
}

/// The file with the content; `None` for stdin.
fn file_of(args: &PutArgs) -> Option<&Path> {
    args.file.as_deref().filter(|file| *file != Path::new("-"))
}

fn name_of(file: Option<&Path>) -> String {
    file.map_or_else(|| "stdin".to_owned(), |file| file.display().to_string())
}

fn read_content(file: Option<&Path>) -> Result<Vec<u8>> {
    let from = name_of(file);
    let read = match file {
        Some(file) => File::open(file).and_then(|file| read_at_most(file, MAX_CONTENT_BYTES)),
        None => read_at_most(std::io::stdin(), MAX_CONTENT_BYTES),
    };
    let bytes = read.map_err(unreadable(&from))?;
    bytes.ok_or_else(|| {
        Failure::new(format!("{from} has more than {MAX_CONTENT_BYTES} bytes, more than any memory"))
    })
}

async fn rename(args: MvArgs) -> Result<()> {
    let (from, mut to) = (api_path(&args.from)?, api_path(&args.to)?);
    let connection = Connection::of_store(&args.store).await?;
    let failed = format!("{} was not moved", agent_path(&from));
    let moved = match find(&connection, &from, "basic").await? {
        Some(memory) => {
            if args.to.ends_with('/') {
                let name = from.rsplit_once('/').map_or(from.as_str(), |(_, name)| name);
                to = format!("{}/{name}", to.trim_end_matches('/'));
            }
            let path = ["memories", text_of(&memory, "id")];
            connection.post(failed, &path, json!({ "path": to })).await?
        }
        None => rename_directory(&connection, &from, &to, &failed).await?,
    };
    let is_there = from == to;
    connection.printer.done(&moved, || match [&from, &to].map(|path| agent_path(path)) {
        [from, _] if is_there => format!("unchanged: {from} has this path already\n"),
        [from, to] => format!("moved {from} to {to}\n"),
    })
}

/// Moves everything below a directory in one step, as the agents' command does.
async fn rename_directory(connection: &Connection, from: &str, to: &str, failed: &str) -> Result<Value> {
    if below(connection, from, "1", &MomentArgs::default()).await?.is_empty() {
        return Err(missing(from));
    }
    let agent_path_of = |path: &str| format!("{AGENT_ROOT}{path}");
    let call = json!({"command": "rename", "old_path": agent_path_of(from), "new_path": agent_path_of(to)});
    let answer = connection.post(failed, &["tool_calls"], call).await?;
    if answer["is_error"] == true {
        let reason = text_of(&answer, "content");
        let reason = printable(reason.strip_prefix("Error: ").unwrap_or(reason));
        return Err(Failure::conflict(format!("{failed}: {reason}")));
    }
    Ok(answer)
}

async fn remove(args: RmArgs) -> Result<()> {
    let paths: Vec<_> = args.paths.iter().map(|path| api_path(path)).collect::<Result<_, _>>()?;
    let connection = Connection::of_store(&args.store).await?;
    let mut memories = Vec::new();
    for path in &paths {
        if let Some(memory) = find(&connection, path, "basic").await? {
            memories.push(memory);
            continue;
        }
        let found = below(&connection, path, "0", &MomentArgs::default()).await?;
        if found.is_empty() {
            return Err(missing(path));
        }
        if !args.recursive {
            let text = format!("{} is a directory: give --recursive", agent_path(path));
            return Err(Failure::usage(text));
        }
        memories.extend(found);
    }
    // A memory may be named twice, as itself and in a directory.
    let mut named = HashSet::new();
    memories.retain(|memory| named.insert(text_of(memory, "id").to_owned()));
    let question = match memories.as_slice() {
        [memory] => format!("Delete {}?", agent_path(text_of(memory, "path"))),
        memories => format!("Delete {} memories?", memories.len()),
    };
    confirm(&question, args.yes)?;
    let place = args.store.repeated(connection.store_id.as_deref());
    let deletes_several = memories.len() > 1 && connection.printer.is_table();
    let changes = if deletes_several { OwnChanges::begin(&connection).await } else { None };
    let (mut has_deleted, mut ended) = (false, Ok(()));
    for memory in &memories {
        let expected = [("expected_content_sha256", memory["content_sha256"].as_str())];
        let shown = agent_path(text_of(memory, "path"));
        let (failed, path) = (format!("{shown} was not deleted"), ["memories", text_of(memory, "id")]);
        let answer = connection.delete(failed, &path, &expected).await;
        ended = answer.and_then(|answer| {
            connection.printer.done(&answer, || {
                if changes.is_some() {
                    return format!("deleted {shown}\n");
                }
                let path = shell_word(&shown);
                format!("deleted {shown}; undo: keepsake memory restore {path}{place}\n")
            })
        });
        if ended.is_err() {
            break;
        }
        has_deleted = true;
    }
    // A failure does not take back the deletions before it.
    if let Some(changes) = changes.filter(|_| has_deleted) {
        match changes.undo(&connection).await {
            Some(undo) => print(&format!("undo: {undo}{place}\n"))?,
            None => notice("`keepsake memory ls --deleted` lists what `keepsake memory restore` brings back"),
        }
    }
    ended
}

/// Changes fields of the memory at a path.
async fn change(connection: &Connection, path: &str, body: Value) -> Result<Value> {
    let Some(memory) = find(connection, path, "basic").await? else {
        return Err(missing_at(connection, path).await);
    };
    let failed = format!("{} was not changed", agent_path(path));
    connection.post(failed, &["memories", text_of(&memory, "id")], body).await
}

async fn pin(args: PinArgs) -> Result<()> {
    let path = api_path(&args.memory.path)?;
    let connection = Connection::of_store(&args.memory.store).await?;
    let pinned = change(&connection, &path, json!({ "pinned": !args.off })).await?;
    let done = if args.off { "unpinned" } else { "pinned" };
    connection.printer.done(&pinned, || format!("{done} {}\n", agent_path(&path)))
}

async fn expire(args: ExpireArgs) -> Result<()> {
    let path = api_path(&args.memory.path)?;
    let ExpiryTime { after, at, .. } = args.when;
    let expires_at = after.map(time_after).or(at);
    let connection = Connection::of_store(&args.memory.store).await?;
    let body = json!({ "expires_at": expires_at.as_deref().unwrap_or(NEVER) });
    let changed = change(&connection, &path, body).await?;
    let when = |field: &str| {
        let time = changed[field].as_str()?;
        Some(format!("{}, at {time}", connection.printer.relative(time)))
    };
    connection.printer.done(&changed, || {
        let shown = agent_path(&path);
        match (when("expires_at"), when("expiry_time")) {
            (Some(time), _) => format!("{shown} expires {time}\n"),
            (None, Some(time)) => format!("{shown} is pinned; without the pin, it expires {time}\n"),
            (None, None) => format!("{shown} never expires\n"),
        }
    })
}

/// The time at the end of a period that begins now, in the form of the API.
fn time_after(period: Duration) -> String {
    if period.is_zero() { NEVER.to_owned() } else { SystemClock.now().plus(period).to_rfc3339() }
}
