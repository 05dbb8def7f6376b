//! `keepsake undo`, `keepsake store restore` and `keepsake store fork`

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use keepsake_config::{Failure, cli::Result};
use keepsake_core::Timestamp;
use serde_json::{Value, json};

use super::connection::Connection;
use super::names::put_names;
use super::sessions::find_session;
use super::{api_folder, confirm, failure_of, put_agent_paths, text_of};
use crate::cli::{ConnectionArgs, IdsArgs, StoreArgs, example, given, parse_moment, shell_word};
use crate::ids::{API_KEY, SESSION};
use crate::output::{Actor, Text, counted, items_of, named, notice, printable};

const NOT_UNDONE: &str = "the changes were not taken back";
/// After a failure of the server or the network.
const NOT_KNOWN: &str = "nothing is known to be taken back";
/// How often a large undo is asked whether it is done.
const POLLED_EACH: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake undo --session sesn_…           what an agent changed in a session
  keepsake undo --key apikey_… --since 2h  what a program changed in two hours
  keepsake undo --session sesn_… --under plans --dry-run
  keepsake undo --cancel memundo_…         ends an undo of many memories")]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Changes of this session
    #[arg(long, value_name = "ID", value_parser = |given: &str| SESSION.parse(given))]
    session: Option<String>,
    /// Changes with this API key: its id or its name
    #[arg(long, value_name = "KEY", conflicts_with = "session")]
    key: Option<String>,
    /// Changes of this person
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "key"])]
    user: Option<String>,
    /// Changes of this workload
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "key", "user"])]
    service_account: Option<String>,
    /// Changes since a time or a date, or in the last 2h, 3d or 1w
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<Timestamp>,
    /// Changes until a time or a date, or before the last 2h, 3d or 1w
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<Timestamp>,
    /// Changes after the one with this sequence number
    #[arg(long, value_name = "N")]
    after_seq: Option<u64>,
    /// Skips memories that were changed after the change with this sequence number
    #[arg(long, value_name = "N")]
    until_seq: Option<u64>,
    /// Changes of memories in this folder, as agents see it
    #[arg(long, value_name = "FOLDER", value_parser = NonEmptyStringValueParser::new())]
    under: Option<String>,
    /// Takes back what others changed afterwards, too
    #[arg(long)]
    overwrite: bool,
    /// Ends a large undo that is under way: memundo_…
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = [
            "session", "key", "user", "service_account", "since", "until", "after_seq", "until_seq", "under",
            "overwrite", "dry_run",
        ]
    )]
    cancel: Option<String>,
    #[command(flatten)]
    sure: SureArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake store restore notes --at 2026-11-20
  keepsake store restore notes --at 2h --under plans --dry-run")]
pub(crate) struct RestoreStoreArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The memory store: its id or its name
    #[arg(value_name = "STORE")]
    store: String,
    #[command(flatten)]
    point: PointArgs,
    /// Only memories in this folder, as agents see it
    #[arg(long, value_name = "FOLDER", value_parser = NonEmptyStringValueParser::new())]
    under: Option<String>,
    #[command(flatten)]
    sure: SureArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct PointArgs {
    /// As it was at a time or a date, or 2h, 3d or 1w ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    at: Option<Timestamp>,
    /// As it was after the change with this sequence number
    #[arg(long, value_name = "N")]
    at_seq: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = example("keepsake store fork notes 'notes, for a try'"))]
pub(crate) struct ForkStoreArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The memory store whose memories are copied: its id or its name
    #[arg(value_name = "STORE")]
    store: String,
    /// The name of the new memory store, 1 to 255 characters
    #[arg(value_name = "NAME")]
    name: String,
    /// As it was after the change with this sequence number
    #[arg(long, value_name = "N")]
    at_seq: Option<u64>,
}

#[derive(Debug, Args)]
struct SureArgs {
    /// Shows what would become of each memory, and changes nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Does not ask for confirmation
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,
    #[command(flatten)]
    ids: IdsArgs,
}

pub(crate) async fn run(args: UndoArgs) -> Result<()> {
    if let Some(undo_id) = &args.cancel {
        let connection = Connection::of_store(&args.store).await?;
        let undo = connection.delete("the undo was not cancelled", &["undo", undo_id], &[]).await?;
        return connection.printer.done(&undo, || {
            let (status, left) = (text_of(&undo, "status"), undo["left"].as_u64().unwrap_or_default());
            let changed = counted(made(&undo).saturating_sub(left), "memory");
            format!("{status}: {changed} were changed, {left} are left\n")
        });
    }
    let mut body = given(json!({
        "session_id": args.session,
        "api_key_id": args.key,
        "user_id": args.user,
        "service_account_id": args.service_account,
        "created_at": period(args.since, args.until),
        "path_prefix": args.under.as_deref().map(api_folder).transpose()?,
        "after_seq": args.after_seq,
        "until_seq": args.until_seq,
        "overwrite": args.overwrite.then_some(true),
    }));
    let is_no_filter = |field: &String| ["overwrite", "until_seq"].contains(&field.as_str());
    if body.as_object().is_none_or(|body| body.keys().all(is_no_filter)) {
        return Err(Failure::usage(
            "nothing says what to take back: --session, --key, --user, --service-account, --since, --until, \
             --after-seq or --under",
        ));
    }
    let connection = Connection::of_store(&args.store).await?;
    if let Some(session) = body["session_id"].as_str() {
        body["session_id"] = find_session(&connection, session).await?.into();
    }
    if let Some(key) = body["api_key_id"].as_str() {
        body["api_key_id"] = API_KEY.find(&connection.client, &["api_keys"], &[], key).await?.into();
    }
    let place = args.store.repeated(connection.store_id.as_deref());
    carry_out(&connection, &place, "undo", body, &args.sure).await
}

pub(super) async fn restore(args: RestoreStoreArgs) -> Result<()> {
    let body = given(json!({
        "at": args.point.at.map(Timestamp::to_rfc3339),
        "at_seq": args.point.at_seq,
        "path_prefix": args.under.as_deref().map(api_folder).transpose()?,
    }));
    let connection = Connection::of_store_named(&args.connection, Some(&args.store)).await?;
    let store_id = connection.store_id.as_deref().unwrap_or_default();
    let place = format!(" --store {store_id}{}", args.connection.server.repeated());
    carry_out(&connection, &place, "restore", body, &args.sure).await
}

/// Waits until the copy has ended.
pub(super) async fn fork(args: ForkStoreArgs) -> Result<()> {
    let mut connection = Connection::of_store_named(&args.connection, Some(&args.store)).await?;
    let source = connection.store_id.take();
    let fork_of = given(json!({ "memory_store_id": source, "at_seq": args.at_seq }));
    let body = json!({ "name": args.name, "fork_of": fork_of });
    let mut made = connection.post("the memory store was not made", &["memory_stores"], body).await?;
    connection.store_id = Some(text_of(&made, "id").to_owned());
    while made["forked_from"]["status"] == "copying" {
        notice(&format!("{} memories are copied so far", made["memory_count"]));
        tokio::time::sleep(POLLED_EACH).await;
        made = connection.get("the memory store cannot be read", &[], &[]).await?;
    }
    let origin = &made["forked_from"];
    if let Some(error) = origin["error"].as_str() {
        connection.printer.done(&made, String::new)?;
        return Err(Failure::new(format!("the copy was broken off: {error}")));
    }
    if let Some(skipped @ 1..) = origin["skipped"].as_u64() {
        notice(&format!("{skipped} memories were not copied"));
    }
    connection.printer.done(&made, || format!("made the memory store {}\n", named(&made)))
}

/// The changes that a command makes, for the command that takes them back.
pub(super) struct OwnChanges {
    /// The option that names their author.
    author: String,
    after_seq: String,
}

impl OwnChanges {
    /// Notes the author and the place of the changes that follow. `None`: the credential may not take them back.
    pub(super) async fn begin(connection: &Connection) -> Option<Self> {
        let credential = connection.client.get::<Value>(&["credential"], &[]).await.ok()?;
        let options = [("key", "api_key_id"), ("user", "user_id"), ("service-account", "service_account_id")];
        let author = options.into_iter().find_map(|(option, field)| {
            let id = printable(credential["actor"][field].as_str()?);
            Some(format!("--{option} {}", shell_word(&id)))
        })?;
        Some(Self { author, after_seq: newest_seq(connection).await? })
    }

    /// The command that takes back the changes since the beginning, without the store and the server. `None`: their
    /// end is not known, and a command without it would take back later changes, too.
    pub(super) async fn undo(&self, connection: &Connection) -> Option<String> {
        let Self { author, after_seq } = self;
        let until_seq = newest_seq(connection).await?;
        Some(format!("keepsake undo {author} --after-seq {after_seq} --until-seq {until_seq}"))
    }
}

/// The sequence number of the store's newest change; `None`: the credential may not list changes.
async fn newest_seq(connection: &Connection) -> Option<String> {
    let place = connection.store()?.newest_place().await.ok().flatten()?;
    place.split('.').next().map(str::to_owned)
}

/// Shows the plan, asks, and makes it. `place` is the arguments that lead another command to the store.
async fn carry_out(
    connection: &Connection,
    place: &str,
    action: &str,
    body: Value,
    sure: &SureArgs,
) -> Result<()> {
    let mut body = body;
    if sure.dry_run || !sure.yes {
        let mut dry = body.clone();
        dry["dry_run"] = true.into();
        let plan = connection.post("the plan cannot be made", &[action], dry).await?;
        let made = made(&plan);
        if !connection.printer.is_table() && (sure.dry_run || made == 0) {
            connection.printer.done(&plan, String::new)?;
            return if sure.dry_run { allowed(&plan) } else { Ok(()) };
        }
        if connection.printer.is_table() {
            show(connection, &plan, sure.ids).await?;
            hint_at_key(connection, &body, &plan).await;
        }
        allowed(&plan)?;
        if sure.dry_run || made == 0 {
            return Ok(());
        }
        if !connection.printer.is_table() {
            notice(&planned(&plan));
        }
        confirm(&format!("Change {}?", counted(made, "memory")), false)?;
        if body["until_seq"].is_null() {
            // Nothing that the plan does not show.
            body["until_seq"] = plan["seq"].clone();
        }
    }
    let changes = if connection.printer.is_table() { OwnChanges::begin(connection).await } else { None };
    let answer = connection.client.post(&connection.path(&[action]), &body).await;
    let mut done: Value = answer.map_err(|error| {
        let is_refused = error.status().is_some_and(|status| status.is_client_error());
        failure_of(if is_refused { NOT_UNDONE } else { NOT_KNOWN })(error)
    })?;
    while text_of(&done, "status") == "in_progress" {
        notice(&format!("{} is under way: {} memories are left", text_of(&done, "id"), done["left"]));
        tokio::time::sleep(POLLED_EACH).await;
        let id = text_of(&done, "id").to_owned();
        done = connection.get("the undo cannot be read", &["undo", &id], &[]).await?;
    }
    let left = &done["left"];
    let ended = match done["error"].as_str() {
        Some(error) => Some(format!("the undo was broken off, {left} memories are left: {error}")),
        None if text_of(&done, "status") == "cancelled" => {
            Some(format!("the undo was cancelled, {left} memories are left"))
        }
        None => None,
    };
    if let Some(text) = ended {
        connection.printer.done(&done, String::new)?;
        return Err(Failure::new(text));
    }
    if connection.printer.is_table() {
        hint_at_key(connection, &body, &done).await;
        let is_skipped = |item: &&Value| item["action"] == "skipped";
        let skipped: Vec<_> = items_of(&done, "data").iter().filter(is_skipped).cloned().collect();
        // Without a question, no plan has said why.
        if sure.yes && !skipped.is_empty() {
            show_items(connection, skipped, sure.ids).await?;
        }
    }
    connection.printer.done(&done, || format!("{}\n", in_words(&done)))?;
    if made(&done) > 0
        && let Some(changes) = changes
        && let Some(undo) = changes.undo(connection).await
    {
        notice(&format!("undo: {undo}{place}"));
    }
    Ok(())
}

/// Fails if a plan would be refused.
fn allowed(plan: &Value) -> Result<()> {
    match plan["refusal"]["message"].as_str() {
        Some(message) => Err(Failure::new(format!("this would be refused: {message}"))),
        None => Ok(()),
    }
}

/// Says where the changes may be if a session has none. One that has changes has nothing left to take back.
async fn hint_at_key(connection: &Connection, body: &Value, undo: &Value) {
    if made(undo) > 0 || undo["counts"]["skipped"].as_u64() != Some(0) {
        return;
    }
    let Some(session) = body["session_id"].as_str() else {
        return;
    };
    let of_session = [("session_id", Some(session))];
    let found = connection.list("", &["memory_versions"], &of_session, 1).await;
    if found.is_ok_and(|versions| versions.is_empty()) {
        notice(
            "calls that an API key makes for a session (/v1/sessions/ID/tool_calls) have the key as their author: \
             `--key` finds them",
        );
    }
}

async fn show(connection: &Connection, plan: &Value, ids: IdsArgs) -> Result<()> {
    let items = items_of(plan, "data");
    show_items(connection, items.to_vec(), ids).await?;
    if let Some(more @ 1..) = plan["not_shown"].as_u64() {
        notice(&format!("{more} more memories are not shown"));
    }
    if !items.is_empty() {
        notice(&planned(plan));
    }
    Ok(())
}

async fn show_items(connection: &Connection, mut items: Vec<Value>, ids: IdsArgs) -> Result<()> {
    put_agent_paths(&mut items);
    for item in &mut items {
        if item["changed_by"].is_null() {
            item["changed_by"] = json!({ "created_by": "-" });
        }
    }
    put_names(connection, ids, &mut items, &["/changed_by/created_by"]).await;
    let columns = [
        ("BECOMES", "/action", Text),
        ("WHY", "/reason", Text),
        ("CHANGED BY", "/changed_by/created_by", Actor),
        ("PATH", "/path", Text),
    ];
    connection.printer.items(&items, &columns, "there is nothing to take back")
}

const ACTIONS: [&str; 4] = ["restored", "deleted", "recreated", "renamed"];

fn made(undo: &Value) -> u64 {
    ACTIONS.iter().filter_map(|action| undo["counts"][action].as_u64()).sum()
}

/// Says of a plan that nothing is changed yet.
fn planned(plan: &Value) -> String {
    format!("would be: {}", in_words(plan))
}

/// `restored 2, deleted 1, skipped 1`
fn in_words(undo: &Value) -> String {
    let counted = ACTIONS.iter().chain(&["skipped"]).filter_map(|action| {
        let count = undo["counts"][action].as_u64().filter(|count| *count > 0)?;
        Some(format!("{action} {count}"))
    });
    let words = counted.collect::<Vec<_>>().join(", ");
    if words.is_empty() { "there is nothing to take back".to_owned() } else { words }
}

fn period(since: Option<Timestamp>, until: Option<Timestamp>) -> Option<Value> {
    let (since, until) = (since.map(Timestamp::to_rfc3339), until.map(Timestamp::to_rfc3339));
    (since.is_some() || until.is_some()).then(|| given(json!({ "gte": since, "lte": until })))
}
