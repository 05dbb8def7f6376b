//! `keepsake memory ls`

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use console::Style;
use keepsake_config::cli::Result;
use keepsake_core::words;
use serde_json::Value;

use super::{below, get_at};
use crate::cli::{IdsArgs, MomentArgs, StoreArgs};
use crate::output::{Actor, Bytes, Flag, Text, Time, print_styled, printable};
use crate::people::connection::Connection;
use crate::people::names::put_names;
use crate::people::{REDACTED, agent_path, api_path, put_agent_paths, text_of};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory ls
  keepsake memory ls -R projects
  keepsake memory ls -R -o jsonl | jq -r .path
  keepsake memory ls --at 2026-11-20  what was there as that day began, in UTC
  keepsake memory ls --deleted        what can be restored")]
pub(crate) struct LsArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The directory, as agents see it
    #[arg(value_name = "PATH", default_value = "/memories")]
    path: String,
    /// Shows everything below it, as a tree
    #[arg(short = 'R', visible_short_alias = 'r', long)]
    recursive: bool,
    #[command(flatten)]
    moment: MomentArgs,
    /// Shows what was deleted and can be restored, the last deleted first
    #[arg(long, conflicts_with_all = ["recursive", "at", "at_seq"])]
    deleted: bool,
    /// With --deleted: shows ids of keys and sessions instead of their names
    #[arg(long, requires = "deleted", help_heading = "Output")]
    ids: bool,
}

pub(super) async fn list(args: LsArgs) -> Result<()> {
    let path = api_path(&args.path)?;
    let connection = Connection::of_store(&args.store).await?;
    if args.deleted {
        return list_deleted(&connection, &path, IdsArgs { ids: args.ids }).await;
    }
    let depth = if args.recursive { "0" } else { "1" };
    let mut items = below(&connection, &path, depth, &args.moment).await?;
    let is_directory = !items.is_empty();
    if !is_directory && path != "/" {
        items.push(get_at(&connection, &path, "basic", &args.moment).await?);
    }
    if args.recursive && connection.printer.is_table() && is_directory {
        return print_styled(&tree(&path, &items, |time| connection.printer.relative(time)));
    }
    // A table shows paths as agents see them; JSON has the paths of the API.
    if connection.printer.is_table() {
        put_agent_paths(&mut items);
    }
    let [size, updated, expires, pinned, path] = [
        ("SIZE", "/content_size_bytes", Bytes),
        ("UPDATED", "/updated_at", Time),
        ("EXPIRES", "/expires_at", Time),
        ("PINNED", "/pinned", Flag),
        ("PATH", "/path", Text),
    ];
    if args.moment.is_past() {
        return connection.printer.items(&items, &[size, updated, path], "the memory store was empty");
    }
    let columns = [size, updated, expires, pinned, path];
    connection.printer.items(&items, &columns, "the memory store is empty")
}

/// Lists the memories that were deleted at a path or below it.
async fn list_deleted(connection: &Connection, path: &str, ids: IdsArgs) -> Result<()> {
    let failed = "the deleted memories cannot be listed";
    let mut items = connection.list(failed, &["memories", "deleted"], &[], usize::MAX).await?;
    let directory = format!("{}/", path.trim_end_matches('/'));
    items.retain(|item| {
        let deleted = text_of(item, "path");
        deleted == path || deleted.starts_with(&directory)
    });
    if connection.printer.is_table() {
        put_agent_paths(&mut items);
    }
    put_names(connection, ids, &mut items, &["/deleted_by"]).await;
    let columns = [
        ("DELETED", "/deleted_at", Time),
        ("BY", "/deleted_by", Actor),
        ("RESTORABLE UNTIL", "/restorable_until", Time),
        ("SIZE", "/content_size_bytes", Bytes),
        ("PATH", "/path", Text),
    ];
    connection.printer.items(&items, &columns, "nothing was deleted that can be restored")
}

/// A node of a tree: a directory with the names in it, or a memory's line.
enum Node<'a> {
    Directory(BTreeMap<&'a str, Self>),
    Memory(String),
}

fn tree(directory: &str, items: &[Value], relative: impl Fn(&str) -> String) -> String {
    let mut root = Node::Directory(BTreeMap::new());
    for item in items {
        let path = text_of(item, "path");
        let path = if path.is_empty() { REDACTED } else { path };
        let below = path.strip_prefix(directory).unwrap_or(path).trim_start_matches('/');
        let mut about = format!(
            "{}, {}",
            words::bytes(item["content_size_bytes"].as_u64().unwrap_or_default()),
            relative(text_of(item, "updated_at"))
        );
        if let Some(time) = item["expires_at"].as_str() {
            let _ = write!(about, ", expires {}", relative(time));
        }
        if item["pinned"] == true {
            about.push_str(", pinned");
        }
        root.insert(below, about);
    }
    let mut text = format!("{}\n", agent_path(directory.trim_end_matches('/')));
    root.write(&mut text, "");
    text
}

impl<'a> Node<'a> {
    /// A memory has nothing below it.
    fn insert(&mut self, path: &'a str, about: String) {
        let Self::Directory(nodes) = self else {
            return;
        };
        match path.split_once('/') {
            None => drop(nodes.insert(path, Self::Memory(about))),
            Some((name, rest)) => {
                let node = nodes.entry(name).or_insert_with(|| Self::Directory(BTreeMap::new()));
                node.insert(rest, about);
            }
        }
    }

    fn write(&self, text: &mut String, indent: &str) {
        let Self::Directory(nodes) = self else {
            return;
        };
        for (place, (name, node)) in nodes.iter().enumerate() {
            let (branch, below) =
                if place + 1 == nodes.len() { ("└── ", "    ") } else { ("├── ", "│   ") };
            let name = printable(name);
            match node {
                Self::Memory(about) => {
                    let about = Style::new().dim().apply_to(about);
                    let _ = writeln!(text, "{indent}{branch}{name}  {about}");
                }
                Self::Directory(_) => {
                    let _ = writeln!(text, "{indent}{branch}{name}/");
                    node.write(text, &format!("{indent}{below}"));
                }
            }
        }
    }
}
