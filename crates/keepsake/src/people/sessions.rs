//! `keepsake session …`, `keepsake audit`, `keepsake usage`

use std::collections::HashSet;
use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, Subcommand};
use keepsake_config::cli::Result;
use keepsake_index::AuditAction;
use serde_json::{Value, json};

use super::connection::Connection;
use super::failure_of;
use super::names::put_names;
use crate::cli::{ConnectionArgs, IdsArgs, example};
use crate::ids::SESSION;
use crate::output::{Action, Actor, Bytes, Column, Count, Text, Time, items_of, print, printable, text_of};

const EVENTS: [Column; 3] =
    [("TIME", "/processed_at", Time), ("TOOL", "/name", Text), ("INPUT", "/input", Text)];

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Lists the sessions, newest first
    #[command(visible_alias = "ls", after_help = example("keepsake session list --all"))]
    List {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Includes archived sessions
        #[arg(short, long)]
        all: bool,
        /// Number of sessions
        #[arg(short = 'n', long, value_name = "N", default_value = "50")]
        limit: usize,
    },
    /// Shows a session and the stores attached to it
    #[command(after_help = example("keepsake session show sesn_…"))]
    Show(SessionArgs),
    /// Lists the last tool calls of a session, oldest first
    #[command(after_help = example("keepsake session events sesn_… --follow"))]
    Events(SessionEventsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The session: sesn_…
    #[arg(value_name = "ID", value_parser = |given: &str| SESSION.parse(given))]
    session: String,
}

#[derive(Debug, Args)]
pub(crate) struct SessionEventsArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Waits for further events until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Number of events, the last ones
    #[arg(short = 'n', long, value_name = "N", default_value = "50")]
    limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct AuditLogArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Only this action
    #[arg(long, value_name = "ACTION", value_parser = ActionParser)]
    action: Option<String>,
    /// Number of entries
    #[arg(short = 'n', long, value_name = "N", default_value = "50")]
    limit: usize,
    #[command(flatten)]
    ids: IdsArgs,
}

pub(crate) async fn run(command: SessionCommand) -> Result<()> {
    match command {
        SessionCommand::List { connection, all, limit } => list(&connection, all, limit).await,
        SessionCommand::Show(args) => show(args).await,
        SessionCommand::Events(args) => events(args).await,
    }
}

async fn list(args: &ConnectionArgs, all: bool, limit: usize) -> Result<()> {
    let connection = Connection::open(args)?;
    let query = [("include_archived", all.then_some("true"))];
    let failed = "the sessions cannot be listed";
    let sessions = connection.first(failed, &["sessions"], &query, limit).await?;
    let columns = [
        ("ID", "/id", Text),
        ("TITLE", "/title", Text),
        ("AGENT", "/agent/id", Text),
        ("STATUS", "/status", Text),
        ("CREATED", "/created_at", Time),
    ];
    connection.printer.first(&sessions, limit, &columns, "there is no session")
}

async fn show(args: SessionArgs) -> Result<()> {
    let connection = Connection::open(&args.connection)?;
    let session_id = find_session(&connection, &args.session).await?;
    let path = ["sessions", &session_id];
    let session = connection.get("the session cannot be shown", &path, &[]).await?;
    let fields = [
        ("id", "/id", Text),
        ("title", "/title", Text),
        ("agent", "/agent/id", Text),
        ("status", "/status", Text),
        ("metadata", "/metadata", Text),
        ("created", "/created_at", Time),
        ("archived", "/archived_at", Time),
    ];
    connection.printer.object(&session, &fields)?;
    if !connection.printer.is_table() {
        return Ok(());
    }
    let columns = [
        ("STORE", "/name", Text),
        ("MOUNT PATH", "/mount_path", Text),
        ("ACCESS", "/access", Text),
        ("ID", "/memory_store_id", Text),
    ];
    print("\n")?;
    connection.printer.items(items_of(&session, "resources"), &columns, "no memory store is attached")
}

/// The id of the session that begins so.
pub(super) async fn find_session(connection: &Connection, beginning: &str) -> Result<String> {
    SESSION.find(&connection.client, &["sessions"], &[("include_archived", Some("true"))], beginning).await
}

async fn events(args: SessionEventsArgs) -> Result<()> {
    let connection = Connection::open(&args.session.connection)?;
    let session = &find_session(&connection, &args.session.session).await?;
    let path = ["sessions", session, "events", "stream"];
    let mut stream = connection.client.events(&path, &[], None);
    if args.follow {
        let opened = stream.open().await;
        opened.map_err(failure_of("the events cannot be followed"))?;
    }
    // Newest first; followed events are compared with all earlier ones.
    let (path, query) = (["sessions", session, "events"], [("order", Some("desc"))]);
    let read = if args.follow { usize::MAX } else { args.limit };
    let mut written = connection.first("the events cannot be listed", &path, &query, read).await?;
    let last = written.len().min(args.limit);
    written[..last].reverse();
    if !args.follow {
        return connection.printer.first(&written, args.limit, &EVENTS, "the session has no events");
    }
    let id_of = |event: &Value| text_of(event, "id").to_owned();
    let show = |event: &Value| {
        connection.printer.done(event, || {
            let text = |field: &str| printable(text_of(event, field));
            let input = printable(&event["input"].to_string());
            format!("{}  {}  {input}\n", text("processed_at"), text("name"))
        })
    };
    for event in &written[..last] {
        show(event)?;
    }
    // After a break the server sends recent events again, since some are written late.
    let mut shown: HashSet<_> = written.iter().map(id_of).collect();
    loop {
        let event = stream.next().await;
        let event = event.map_err(failure_of("the events cannot be followed"))?;
        if shown.insert(id_of(&event.data)) {
            show(&event.data)?;
        }
    }
}

/// Takes any text, because a newer server has further actions. The help explains the known ones.
#[derive(Debug, Clone, Copy)]
struct ActionParser;

impl TypedValueParser for ActionParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        option: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |action: AuditAction| PossibleValue::new(action.name()).help(action.words());
        Some(Box::new(AuditAction::ALL.into_iter().map(value)))
    }
}

pub(crate) async fn show_audit(args: AuditLogArgs) -> Result<()> {
    let connection = Connection::open(&args.connection)?;
    let query = [("action", args.action.as_deref())];
    let failed = "the audit cannot be listed";
    let mut entries = connection.first(failed, &["audit"], &query, args.limit).await?;
    put_names(&connection, args.ids, &mut entries, &["/actor", "/object/id"]).await;
    let columns = [
        ("TIME", "/created_at", Time),
        ("ACTOR", "/actor", Actor),
        ("ACTION", "/action", Action),
        ("OBJECT", "/object/id", Text),
    ];
    connection.printer.first(&entries, args.limit, &columns, "the audit has no entries")
}

/// Shows the size of every memory store, and their sum.
pub(crate) async fn show_usage(args: &ConnectionArgs) -> Result<()> {
    let connection = Connection::open(args)?;
    let query = [("include_archived", Some("true"))];
    let failed = "the memory stores cannot be listed";
    let mut stores = connection.list(failed, &["memory_stores"], &query, usize::MAX).await?;
    let sum = |field: &str| stores.iter().filter_map(|store| store[field].as_u64()).sum::<u64>();
    let total = json!({
        "name": "total",
        "memory_count": sum("memory_count"),
        "content_bytes": sum("content_bytes"),
    });
    if connection.printer.is_table() {
        stores.push(total);
    }
    let columns = [
        ("STORE", "/name", Text),
        ("MEMORIES", "/memory_count", Count),
        ("SIZE", "/content_bytes", Bytes),
        ("ID", "/id", Text),
    ];
    connection.printer.items(&stores, &columns, "there is no memory store")
}
