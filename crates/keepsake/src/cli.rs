//! Arguments that several commands share, and words for a shell.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use keepsake_config::{Failure, SourceArgs, cli::Result};
use keepsake_core::{SearchMode, Timestamp, words};
use keepsake_engine::{Clock, SystemClock};
use serde_json::{Map, Value};

/// The heading of the options of a connection.
const CONNECTION: &str = "Connection";

/// The server and the credential of a command, and the format of its output.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The server and the credential of a command.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// The context with URL, API key and store, instead of the current one
    #[arg(long, value_name = "NAME", help_heading = CONNECTION)]
    #[arg(env = "KEEPSAKE_CONTEXT", hide_env_values = true)]
    pub(crate) context: Option<String>,
    /// The server's URL
    #[arg(long, value_name = "URL", help_heading = CONNECTION)]
    #[arg(env = "KEEPSAKE_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// An API key or a token; prefer the variable, other users can see arguments
    #[arg(long, value_name = "KEY", help_heading = CONNECTION)]
    #[arg(env = "KEEPSAKE_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
}

impl ServerArgs {
    /// Refuses arguments of a server for a command that uses none. Variables are
    /// ignored.
    pub(crate) fn refuse_beside(&self, other: &str) -> Result<()> {
        match self.arguments().next() {
            Some((argument, _)) => Err(Failure::usage(format!("{argument} cannot be used with {other}"))),
            None => Ok(()),
        }
    }

    /// The arguments that lead another command to the same server, without the API key, which is not
    /// to be printed. Variables are the same for the other command.
    pub(crate) fn repeated(&self) -> String {
        let arguments = self.arguments().filter(|(argument, _)| *argument != "--api-key");
        arguments
            .flat_map(|(argument, value)| [" ".into(), argument.into(), " ".into(), shell_word(value)])
            .collect()
    }

    /// The arguments that are given, without variables.
    fn arguments(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let given = [
            ("--context", "KEEPSAKE_CONTEXT", &self.context),
            ("--url", "KEEPSAKE_URL", &self.url),
            ("--api-key", "KEEPSAKE_API_KEY", &self.api_key),
        ];
        given.into_iter().filter_map(|(argument, variable, value)| {
            let value = value.as_deref()?;
            (std::env::var(variable).ok().as_deref() != Some(value)).then_some((argument, value))
        })
    }
}

/// The connection, and the store that a command works on.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) named: StoreNameArgs,
}

impl StoreArgs {
    /// The arguments that lead another command to the same server, and to the store with this id.
    pub(crate) fn repeated(&self, store_id: Option<&str>) -> String {
        // The store that was named is not the one of another command by default.
        let of_store = match (&self.named.store, store_id) {
            (Some(_), Some(store_id)) => format!(" --store {store_id}"),
            _ => String::new(),
        };
        of_store + &self.connection.server.repeated()
    }
}

#[derive(Debug, Args)]
pub(crate) struct StoreNameArgs {
    /// The memory store: its id or its name
    #[arg(short, long, value_name = "STORE", help_heading = CONNECTION)]
    #[arg(env = "KEEPSAKE_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MomentArgs {
    /// As the store was at this time: 2026-11-20 or 2026-11-20T09:00:00Z, or 2h, 3d or 1w ago
    #[arg(long, value_name = "TIME", value_parser = moment_text)]
    at: Option<String>,
    /// As the store was after the change with this sequence number
    #[arg(long, value_name = "N", conflicts_with = "at")]
    at_seq: Option<String>,
}

impl MomentArgs {
    pub(crate) fn is_past(&self) -> bool {
        self.at.is_some() || self.at_seq.is_some()
    }

    /// The parameters of the API.
    pub(crate) fn query(&self) -> [(&'static str, Option<&str>); 2] {
        [("at", self.at.as_deref()), ("at_seq", self.at_seq.as_deref())]
    }
}

/// How a table shows who did something.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct IdsArgs {
    /// Shows ids instead of names
    #[arg(long, help_heading = "Output")]
    pub(crate) ids: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// The format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "table", help_heading = "Output")]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people: aligned columns, human sizes, relative times
    Table,
    /// One JSON document, as the API answers
    Json,
    /// One JSON object per line
    Jsonl,
}

/// The configuration of a command on the server's machine.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The database or the server that a command uses.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// The URL of a server's operator listener, instead of the database; the token is in `KEEPSAKE_OPERATOR_TOKEN`
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "data_dir"])]
    pub(crate) server: Option<String>,
    /// A file with the operator's token
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl TargetArgs {
    /// The arguments that lead another command to the same database or server.
    pub(crate) fn repeated(&self) -> String {
        let path = |path: Option<&Path>| path.map(|path| path.display().to_string());
        let given = [
            ("--config", path(self.sources.config.as_deref())),
            ("--data-dir", path(self.sources.data_dir.as_deref())),
            ("--server", self.server.clone()),
            ("--token-file", path(self.token_file.as_deref())),
        ];
        let given = given.into_iter().filter_map(|(argument, value)| Some((argument, value?)));
        given
            .flat_map(|(argument, value)| [" ", argument, " ", &*shell_word(&value)].map(str::to_owned))
            .collect()
    }

    /// Refuses arguments of the operator without `argument`, which makes a command the operator's.
    pub(crate) fn refuse_without(&self, argument: &str) -> Result<()> {
        let given = [
            ("--config", self.sources.config.is_some()),
            ("--data-dir", self.sources.data_dir.is_some()),
            ("--server", self.server.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Failure::usage(format!("{name} needs {argument}"))),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Number of items, 1 to 100 [default: 20]
    #[arg(long = "limit", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: Option<u32>,
    /// The `next_page` of the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) page: Option<String>,
}

/// A period: a number with the unit `s`, `m`, `h`, `d` or `w`, or `never`.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    if text == "never" {
        return Ok(Duration::ZERO);
    }
    let rule =
        || "a period is a whole number above 0 and s, m, h, d or w, such as 90d; or `never`".to_owned();
    let seconds = words::parse_period(text).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(rule)
}

/// A time, a date, which means its midnight in UTC, or a period before now.
pub(crate) fn parse_moment(text: &str) -> Result<Timestamp, String> {
    match (Timestamp::parse(text), parse_period(text)) {
        (Some(at), _) => Ok(at),
        (None, Ok(period)) if !period.is_zero() => Ok(SystemClock.now().minus(period)),
        _ => Err("a time is a date, a time in RFC 3339, or a period before now, such as 2h".to_owned()),
    }
}

/// As [`parse_moment`], for a parameter of the API.
pub(crate) fn moment_text(text: &str) -> Result<String, String> {
    parse_moment(text).map(Timestamp::to_rfc3339)
}

/// The choices of `--search-mode`.
const SEARCH_MODES: &[(&str, &str)] = &[
    ("lexical", "By words"),
    ("hybrid", "By words, and by meaning where the server has a model"),
    ("default", "By the tenant's setting; for a tenant, `hybrid`"),
];

/// How a store is searched, or the stores of a tenant.
#[derive(Debug, Args)]
pub(crate) struct SearchModeArgs {
    /// How searches find memories
    #[arg(long, value_name = "MODE", value_parser = choice(|name| Some(name.to_owned()), SEARCH_MODES))]
    search_mode: Option<String>,
}

impl SearchModeArgs {
    /// Sets the field of a request's body, if the argument is there.
    pub(crate) fn set_in(self, body: &mut Value) {
        if let Some(mode) = self.search_mode {
            body["search_mode"] = SearchMode::parse(&mode).map_or(Value::Null, |mode| mode.name().into());
        }
    }
}

/// The help that follows a command's options, if it has one example.
pub(crate) fn example(line: &str) -> String {
    format!("Example:\n  {line}")
}

/// The body of a request: an object without the fields that no argument gives.
pub(crate) fn given(mut fields: Value) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

/// Refuses a change without a field.
pub(crate) fn require_change(body: &Value, command: &str) -> Result<()> {
    if body.as_object().is_none_or(Map::is_empty) {
        let text = format!("nothing says what to change: `{command} --help` lists the options");
        return Err(Failure::usage(text));
    }
    Ok(())
}

/// A parser of names, whose help explains each.
pub(crate) fn choice<T: Clone + Send + Sync + 'static>(
    parse: fn(&str) -> Option<T>,
    names: &[(&'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let values = names.iter().map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(move |name| parse(&name).ok_or("it has another name"))
}

/// A text as one word of a shell's command.
pub(crate) fn shell_quoted(text: &str) -> String {
    // In single quotes, a shell takes everything but the quote as it is.
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A printable text as one word of a shell.
pub(crate) fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.into() } else { shell_quoted(text).into() }
}
