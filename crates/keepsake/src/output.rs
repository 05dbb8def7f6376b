//! Prints results: tables for people, JSON for programs.

mod foreign;
mod layout;
mod terminal;

use std::time::Duration;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use console::{Style, Term};
use indicatif::{HumanCount, HumanDuration};
use jiff::Timestamp;
use keepsake_config::cli::Result;
use keepsake_core::words;
use keepsake_index::action_words;
use serde_json::{Map, Value, json};

use crate::cli::OutputFormat;
pub(crate) use Format::{
    Action, Actor, Aside, Author, Bytes, Count, Flag, Limits, Outcome, Period, Schedule, Text, Time,
};
pub(crate) use foreign::printable;
pub(crate) use keepsake_core::words::{bytes, counted, limit};
pub(crate) use terminal::{
    Stream, answer, confirm, is_interactive, notice, notice_styled, print, print_styled, progress_bar,
    require_terminal,
};

#[derive(Debug, Clone)]
pub(crate) struct Printer {
    format: OutputFormat,
    /// Columns of the terminal; `None` if the output is no terminal and lines are not
    /// cut.
    width: Option<u16>,
    now: Timestamp,
}

/// A column of a table, or a field of an object: its header, the JSON pointer of the
/// value in an item, and how the value is shown.
pub(crate) type Column = (&'static str, &'static str, Format);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    /// A text that a narrow terminal leaves out before a time.
    Aside,
    Bytes,
    Count,
    /// A time, shown relative to now.
    Time,
    /// A number of seconds.
    Period,
    Flag,
    /// Who did something: a name, or the actor as the API describes it, whose id is shown.
    Actor,
    /// As [`Actor`], but a narrow terminal leaves it out before a time.
    Author,
    /// An action of an audit, in words.
    Action,
    Limits,
    /// When the job that is the item runs, and when it does next.
    Schedule,
    /// What a job's run did, without what it found nothing of, or why it failed.
    Outcome,
}

impl Printer {
    pub(crate) fn new(format: OutputFormat) -> Self {
        let terminal = Term::stdout();
        Self { format, width: terminal.is_term().then(|| terminal.size().1), now: Timestamp::now() }
    }

    pub(crate) fn is_table(&self) -> bool {
        self.format == OutputFormat::Table
    }

    /// `none` describes an empty list.
    pub(crate) fn items(&self, items: &[Value], columns: &[Column], none: &str) -> Result<()> {
        match self.format {
            OutputFormat::Table if items.is_empty() => {
                notice(none);
                Ok(())
            }
            OutputFormat::Table => print_styled(&self.table(items, columns)),
            OutputFormat::Json => print(&format!("{:#}\n", json!({ "data": items }))),
            OutputFormat::Jsonl => items.iter().try_for_each(|item| print(&format!("{item}\n"))),
        }
    }

    /// As [`Printer::items`], for the first `limit` items of a list, and one more if the list has more,
    /// which a table says.
    pub(crate) fn first(&self, items: &[Value], limit: usize, columns: &[Column], none: &str) -> Result<()> {
        let has_more = items.len() > limit && self.is_table();
        // With a limit of 0, nothing is shown of a list that is not empty.
        if limit > 0 || !has_more {
            self.items(&items[..items.len().min(limit)], columns, none)?;
        }
        if has_more {
            notice(&format!("there are more: -n shows more than {limit}"));
        }
        Ok(())
    }

    /// Prints one page of a list, in JSON as the API answers; `none` describes an empty
    /// list.
    pub(crate) fn list(&self, list: &Value, columns: &[Column], none: &str) -> Result<()> {
        if self.format == OutputFormat::Json {
            return print(&format!("{list:#}\n"));
        }
        self.items(items_of(list, "data"), columns, none)
    }

    /// As [`Printer::list`], and how to get the next page.
    pub(crate) fn page(&self, list: &Value, columns: &[Column], none: &str) -> Result<()> {
        self.list(list, columns, none)?;
        if self.format == OutputFormat::Json {
            return Ok(());
        }
        if let Some(next) = list["next_page"].as_str() {
            notice(&format!("there is more: repeat the command with --page {next}"));
        }
        Ok(())
    }

    /// Prints one object, for people as a field per line.
    pub(crate) fn object(&self, object: &Value, fields: &[Column]) -> Result<()> {
        self.done_styled(object, || {
            let width = fields.iter().map(|(header, ..)| header.len()).max().unwrap_or_default();
            let line = |field: &Column| {
                let name = Style::new().bold().apply_to(format!("{:<width$}", field.0));
                format!("{name}  {}\n", self.shown(object, field))
            };
            fields.iter().map(line).collect()
        })
    }

    /// Prints the object that a command made or changed, for people as a sentence.
    pub(crate) fn done(&self, object: &Value, sentence: impl FnOnce() -> String) -> Result<()> {
        self.done_styled(object, || Stream::Stdout.shown(&sentence()).into_owned())
    }

    /// As [`Printer::done`], for a text with colours: see [`print_styled`].
    pub(crate) fn done_styled(&self, object: &Value, text: impl FnOnce() -> String) -> Result<()> {
        match self.format {
            OutputFormat::Table => print_styled(&text()),
            OutputFormat::Json => print(&format!("{object:#}\n")),
            OutputFormat::Jsonl => print(&format!("{object}\n")),
        }
    }

    /// Prints a step of a command that goes on. With JSON, only the final result is
    /// printed.
    pub(crate) fn step(&self, step: &Value, sentence: impl FnOnce() -> String) -> Result<()> {
        match self.format {
            OutputFormat::Json => Ok(()),
            OutputFormat::Table | OutputFormat::Jsonl => self.done(step, sentence),
        }
    }

    fn table(&self, items: &[Value], columns: &[Column]) -> String {
        let cells = |item| columns.iter().map(|column| self.shown(item, column)).collect();
        let mut rows: Vec<Vec<String>> = items.iter().map(cells).collect();
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let layout = self.width.map(|width| layout::fit(columns, &mut rows, usize::from(width)));
        let shown: Vec<usize> = match &layout {
            Some(layout) => layout.iter().map(|(column, _)| *column).collect(),
            None => (0..columns.len()).collect(),
        };
        table.set_header(shown.iter().map(|column| columns[*column].0));
        for mut row in rows {
            table.add_row(shown.iter().map(|column| std::mem::take(&mut row[*column])));
        }
        if let Some(width) = self.width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        let last = shown.len().saturating_sub(1);
        for (place, column) in table.column_iter_mut().enumerate() {
            let is_number = matches!(columns[shown[place]].2, Bytes | Count);
            column.set_cell_alignment(if is_number { CellAlignment::Right } else { CellAlignment::Left });
            let gap = if place == last { 0 } else { layout::GAP };
            column.set_padding((0, gap));
            if let Some(layout) = &layout {
                let width = u16::try_from(layout[place].1 + usize::from(gap)).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
            }
        }
        let mut lines = table.lines();
        let header = lines.next().unwrap_or_default();
        let mut text = format!("{}\n", Style::new().bold().apply_to(header.trim_end()));
        for line in lines {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// A value in one line, without characters that control a terminal.
    fn shown(&self, item: &Value, column: &Column) -> String {
        printable(&self.worded(item, column))
    }

    fn worded(&self, item: &Value, (_, pointer, format): &Column) -> String {
        let value = item.pointer(pointer).unwrap_or(&Value::Null);
        match (format, value) {
            (Flag, value) => if value == true { "yes" } else { "-" }.to_owned(),
            (Bytes, Value::Number(bytes)) => words::bytes(bytes.as_u64().unwrap_or_default()),
            (Count, Value::Number(count)) => HumanCount(count.as_u64().unwrap_or_default()).to_string(),
            (Time, Value::String(time)) => self.relative(time),
            (Period, Value::Number(seconds)) => words::period(seconds.as_u64().unwrap_or_default()),
            (Actor | Author, Value::String(name)) => name.clone(),
            (Actor | Author, actor) => actor_id(actor),
            (Action, Value::String(action)) => action_words(action),
            (Limits, Value::Object(limits)) if !limits.is_empty() => {
                let limits = limits.iter().map(|(name, value)| {
                    let value = value.as_u64().unwrap_or_default();
                    format!("{name}={}", words::limit(name, value))
                });
                limits.collect::<Vec<_>>().join(", ")
            }
            (Schedule, job) => {
                let next = self.relative(text_of(job, "next_run_at"));
                let period_seconds = job["period_seconds"].as_u64().unwrap_or_default();
                format!("{}, next {next}", words::schedule(text_of(job, "schedule"), period_seconds))
            }
            (Outcome, run) => {
                if let Value::String(error) = &run["error"] {
                    return error.clone();
                }
                let mut counts = run["counts"].clone();
                if let Some(counts) = counts.as_object_mut() {
                    counts.retain(|_, count| !["0", "no", "-"].contains(&cell_of(count).as_str()));
                }
                cell_of(&counts)
            }
            (_, value) => cell_of(value),
        }
    }

    /// A time relative to now: `3 minutes ago`, `just now`, `in 2 days`; `now` if it comes within a second.
    pub(crate) fn relative(&self, time: &str) -> String {
        let Ok(time) = time.parse::<Timestamp>() else {
            return printable(time);
        };
        let seconds = self.now.as_second() - time.as_second();
        let distance = HumanDuration(Duration::from_secs(seconds.unsigned_abs()));
        match seconds {
            0 if time <= self.now => "just now".to_owned(),
            0 => "now".to_owned(),
            1.. => format!("{distance} ago"),
            _ => format!("in {distance}"),
        }
    }
}

/// Returns an actor's id, or `operator` or `server` for an actor without one.
pub(crate) fn actor_id(actor: &Value) -> String {
    let id = ["api_key_id", "session_id", "user_id", "service_account_id"]
        .iter()
        .find_map(|field| actor[field].as_str());
    match id {
        Some(id) => printable(id),
        None if actor["type"] == "operator_actor" => "operator".to_owned(),
        None => "server".to_owned(),
    }
}

/// The size that an event of a session has in place of a text.
fn only_size(fields: &Map<String, Value>) -> Option<u64> {
    fields.get("size_bytes").and_then(Value::as_u64).filter(|_| fields.len() == 1)
}

/// A text field of an object; empty if it is missing.
pub(crate) fn text_of<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// The name and the id of an object: `fleet (apikey_…)`.
pub(crate) fn named(object: &Value) -> String {
    format!("{} ({})", printable(text_of(object, "name")), printable(text_of(object, "id")))
}

/// The items of a list in an object; none if it is missing.
pub(crate) fn items_of<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map_or(&[][..], Vec::as_slice)
}

fn cell_of(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(is_set) => if *is_set { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(cell_of).collect::<Vec<_>>().join(", "),
        Value::Object(fields) if fields.is_empty() => "-".to_owned(),
        Value::Object(fields) => {
            if let Some(size) = only_size(fields) {
                return words::bytes(size);
            }
            let fields = fields.iter().map(|(name, value)| match value {
                Value::Object(inner) if !inner.is_empty() && only_size(inner).is_none() => {
                    format!("{name}=({})", cell_of(value))
                }
                value => format!("{name}={}", cell_of(value)),
            });
            fields.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_words() {
        let job = json!({
            "schedule": "30 3/10 * * * *", "period_seconds": 86_400, "next_run_at": "2026-01-02T04:00:00Z",
            "last_run": {"counts": {"removed": 3, "kept": 2, "failed": 0, "stalled": false}, "error": null},
        });
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let printer = Printer { format: OutputFormat::Table, width: None, now };
        let shown = |column: &Column| printer.shown(&job, column);
        assert_eq!(shown(&("SCHEDULE", "", Schedule)), "daily at 00:03 UTC, next in 4 hours");
        let close = ["2026-01-02T00:00:00Z", "2026-01-02T00:00:00.5Z"].map(|time| printer.relative(time));
        assert_eq!(close, ["just now", "now"]);
        let outcome = shown(&("RESULT", "/last_run", Outcome));
        assert!(["removed=3, kept=2", "kept=2, removed=3"].contains(&outcome.as_str()), "{outcome}");
        assert_eq!(actor_id(&json!({"type": "operator_actor"})), "operator");
        let failed = json!({"counts": null, "error": "no\u{1b}"});
        assert_eq!(printer.shown(&failed, &("RESULT", "", Outcome)), "no\\u001b");
        let limits = json!({"limits": {"bytes_per_memory": 1_024}});
        assert_eq!(printer.shown(&limits, &("LIMITS", "/limits", Limits)), "bytes_per_memory=1 KiB");
        for (value, text) in [
            (json!(null), "-"),
            (json!(true), "yes"),
            (json!(["a", 1]), "a, 1"),
            (json!({"a": 1, "b": {"c": false}}), "a=1, b=(c=no)"),
            (json!({"path": {"size_bytes": 23}}), "path=23 B"),
        ] {
            assert_eq!(cell_of(&value), text, "{value}");
        }
    }
}
