//! `keepsake completions`: a shell asks the program itself how a line goes on, so that it
//! completes contexts, and the stores and paths of the server.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Arg, Args, Command};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use keepsake_config::{Failure, cli::Result};
use serde_json::Value;

use crate::cli::ServerArgs;
use crate::contexts::Contexts;
use crate::output::{print, text_of};
use crate::people::{api_folder, connect_quietly, store_of};

/// Names the shell that asks.
const VARIABLE: &str = "_KEEPSAKE_COMPLETE";
const PROGRAM: &str = "keepsake";
/// A person waits for the answer.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Shells that quote a completion. In another shell, it is a part of the command line as it is.
const QUOTING_SHELLS: [&str; 2] = ["fish", "zsh"];
/// Completions of more than this are of no use.
const MAX_CANDIDATES: usize = 500;

#[derive(Debug, Args)]
#[command(after_help = "\
The completions ask the server for stores and paths, as the commands do: with the current context, or with the \
variables and options that are set.

Examples:
  keepsake completions bash > /etc/bash_completion.d/keepsake
  keepsake completions zsh > \"${fpath[1]}/_keepsake\"
  keepsake completions fish > ~/.config/fish/completions/keepsake.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// Prints the script that makes a shell ask this program.
pub(crate) fn print_completions(args: &CompletionsArgs) -> Result<()> {
    let (name, mut script) = (args.shell.to_string(), Vec::new());
    let shells = Shells::builtins();
    let shell = shells.completer(&name);
    let shell = shell.ok_or_else(|| Failure::usage(format!("{name} has no completions")))?;
    let written = shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script);
    written.map_err(Failure::of("the completions cannot be made"))?;
    print(&String::from_utf8_lossy(&script))
}

/// Answers a shell that asks for completions, and ends the process then. Must be called
/// before other threads run.
pub(crate) fn answer_shell(program: impl Fn() -> Command) {
    // Read here: `CompleteEnv` removes the variable.
    let is_quoted = std::env::var(VARIABLE).is_ok_and(|shell| QUOTING_SHELLS.contains(&shell.as_str()));
    let factory = || with_candidates(program(), false, is_quoted);
    CompleteEnv::with_factory(factory).var(VARIABLE).bin(PROGRAM).complete();
}

fn with_candidates(command: Command, is_of_memories: bool, is_quoted: bool) -> Command {
    let is_of_memories = is_of_memories || command.get_name() == "memory";
    let is_of_contexts = command.get_name() == "context";
    let command = command.mut_args(|arg| completed(arg, is_of_memories, is_quoted));
    command.mut_subcommands(|command| {
        let command = if is_of_contexts {
            command.mut_args(|arg| if arg.get_id() == "name" { of_contexts(arg) } else { arg })
        } else {
            command
        };
        with_candidates(command, is_of_memories, is_quoted)
    })
}

/// An argument with its completions, which its value's name decides.
fn completed(arg: Arg, is_of_memories: bool, is_quoted: bool) -> Arg {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let paths = move |begun: &OsStr| paths(begun, is_quoted);
    match value.as_deref() {
        _ if arg.get_id() == "context" => of_contexts(arg),
        Some("STORE") => arg.add(ArgValueCompleter::new(stores)),
        Some("FOLDER") => arg.add(ArgValueCompleter::new(paths)),
        Some("FROM" | "TO") if is_of_memories => arg.add(ArgValueCompleter::new(paths)),
        Some(name) if is_of_memories && name.contains("PATH") => arg.add(ArgValueCompleter::new(paths)),
        _ => arg,
    }
}

fn of_contexts(arg: Arg) -> Arg {
    arg.add(ArgValueCompleter::new(|begun: &OsStr| {
        let known = Contexts::of_user().map(|(known, _)| known).unwrap_or_default();
        candidates(begun, known.contexts.into_iter().map(|(name, context)| (name, context.url)))
    }))
}

fn stores(begun: &OsStr) -> Vec<CompletionCandidate> {
    let found = wait_for(async {
        let (client, _) = connect_quietly(&server_args()).ok()?;
        client.pages(&["memory_stores"], &[]).take::<Value>(MAX_CANDIDATES).await.ok()
    });
    let named = found.unwrap_or_default().into_iter().map(|store| {
        let [name, id] = ["name", "id"].map(|field| text_of(&store, field).to_owned());
        if is_word(&name) { (name, id) } else { (id, name) }
    });
    candidates(begun, named)
}

/// Whether every shell takes a text as one word and as no option.
fn is_word(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

/// The memories and directories of the directory that the begun path is in. An agent chooses their
/// names: a shell that does not quote them gets only plain words.
fn paths(begun: &OsStr, is_quoted: bool) -> Vec<CompletionCandidate> {
    let begun_text = begun.to_string_lossy().into_owned();
    let directory = begun_text.rsplit_once('/').map_or("", |(directory, _)| directory);
    let found = wait_for(async {
        let words = words();
        let (client, of_context) = connect_quietly(&server_args()).ok()?;
        let named = option(&words, &["--store", "-s"], "KEEPSAKE_STORE");
        let store = store_of(client, named.or(of_context)).await.ok()?;
        let prefix = api_folder(directory).ok()?;
        let path = store.path(&["memories"]);
        let query = [("path_prefix", Some(prefix.as_str())), ("depth", Some("1"))];
        store.client.pages(&path, &query).take::<Value>(MAX_CANDIDATES).await.ok()
    });
    // In the form that was begun.
    let root = if begun_text.starts_with('/') { "/memories/" } else { "" };
    let paths = found.unwrap_or_default().into_iter().filter_map(|item| {
        let path = item["path"].as_str()?.strip_prefix('/')?;
        (is_quoted || is_word(path)).then(|| (format!("{root}{path}"), String::new()))
    });
    candidates(begun, paths)
}

/// The values that go on as begun, each with a description.
fn candidates(begun: &OsStr, values: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let values = values.filter(|(value, _)| value.starts_with(&*begun));
    let made = values.map(|(value, help)| {
        let help = (!help.is_empty()).then(|| crate::output::printable(&help).into());
        CompletionCandidate::new(value).help(help)
    });
    made.collect()
}

/// `None` also if the server takes too long.
fn wait_for<T>(found: impl Future<Output = Option<T>>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(MAX_WAIT, found).await.ok()? })
}

/// The words of the line so far.
fn words() -> Vec<String> {
    std::env::args_os()
        .skip_while(|word| word != "--")
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn server_args() -> ServerArgs {
    let words = words();
    ServerArgs {
        context: option(&words, &["--context"], "KEEPSAKE_CONTEXT"),
        url: option(&words, &["--url"], "KEEPSAKE_URL"),
        api_key: option(&words, &["--api-key"], "KEEPSAKE_API_KEY"),
    }
}

/// The value of an option in the line, or else of its variable.
fn option(words: &[String], names: &[&str], variable: &str) -> Option<String> {
    let mut following = words.iter().skip(1);
    let in_line = words.iter().find_map(|word| {
        let next = following.next();
        if names.contains(&word.as_str()) {
            return next.cloned();
        }
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    });
    in_line.or_else(|| std::env::var(variable).ok()).filter(|value| !value.is_empty())
}
