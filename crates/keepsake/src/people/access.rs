//! `keepsake login` and `keepsake context`.

use std::io::{IsTerminal, Read};
use std::path::Path;

use clap::{Args, Subcommand};
use console::Term;
use keepsake_client::{Client, ClientError, server_url};
use keepsake_config::{Failure, cli::Result};
use serde_json::{Value, json};

use super::connection::{find_store, is_same_server};
use super::failure_of;
use crate::cli::{OutputArgs, example, shell_quoted};
use crate::contexts::{Context, Contexts};
use crate::failures::of_client;
use crate::output::{Flag, Printer, Stream, Text, notice, print};

const NO_CONTEXT: &str = "there is no context: `keepsake login URL` makes one";
/// What commands take from the environment instead of the current context.
const VARIABLES: [&str; 4] = ["KEEPSAKE_CONTEXT", "KEEPSAKE_URL", "KEEPSAKE_API_KEY", "KEEPSAKE_STORE"];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake login https://memory.example.com
  keepsake login https://memory.example.com --name work --store notes < key.txt")]
pub(crate) struct LoginArgs {
    /// The server's URL
    #[arg(value_name = "URL")]
    url: String,
    /// The name of the context [default: the host, with the port if another server has that name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The memory store that commands use: its id or its name
    #[arg(short, long, value_name = "STORE")]
    store: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Lists the contexts
    #[command(visible_alias = "ls", after_help = example("keepsake context list"))]
    List(OutputArgs),
    /// Makes a context the current one
    #[command(after_help = example("keepsake context use work --store notes"))]
    Use {
        /// The context
        #[arg(value_name = "NAME")]
        name: String,
        /// The memory store that commands use from now on: its id or its name
        #[arg(short, long, value_name = "STORE")]
        store: Option<String>,
    },
    /// Prints a context as variables, for clients
    #[command(after_help = example("eval \"$(keepsake context env dev)\""))]
    Env {
        /// The context [default: the current one]
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Removes a context and its API key
    #[command(visible_alias = "rm", after_help = example("keepsake context remove work"))]
    Remove {
        /// The context
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Checks an API key and remembers it as a context, which becomes the current one.
pub(crate) async fn login(args: LoginArgs) -> Result<()> {
    let (mut contexts, path) = Contexts::of_user()?;
    let refused = |error: ClientError| Failure::usage(error.to_string());
    // A person types no key for a URL that is refused.
    server_url(&args.url).map_err(refused)?;
    let api_key = read_key(&args.url)?;
    let client = Client::new(&args.url, &api_key.as_str().into()).map_err(refused)?;
    let probed = client.get::<Value>(&["memory_stores"], &[("limit", Some("1"))]).await;
    match probed {
        // A key without the scope to list stores is valid nevertheless.
        Err(error) if !lacks_scope(&error) => return Err(failure_of("not logged in")(error)),
        _ => {}
    }
    if let Some(store) = &args.store {
        require_store(&client, store).await?;
    }
    let name = args.name.unwrap_or_else(|| name_of(&client, &contexts));
    let context = Context { url: client.url().to_owned(), api_key, store: args.store, data_dir: None };
    contexts.insert(&name, context);
    contexts.current = Some(name.clone());
    contexts.write(&path)?;
    print(&format!("logged in to {}; the current context is {name}\n", client.url()))?;
    tell_variables();
    Ok(())
}

/// Refuses a store that the server does not have.
async fn require_store(client: &Client, store: &str) -> Result<()> {
    let store_id = find_store(client, store).await?;
    match client.get::<Value>(&["memory_stores", &store_id], &[]).await {
        Err(error) if !lacks_scope(&error) => Err(failure_of(format_args!("--store {store}"))(error)),
        _ => Ok(()),
    }
}

fn lacks_scope(error: &ClientError) -> bool {
    error.status().is_some_and(|status| status.as_u16() == 403)
}

/// Says which variables win over the current context.
fn tell_variables() {
    let set: Vec<_> = VARIABLES.into_iter().filter(|name| std::env::var_os(name).is_some()).collect();
    if !set.is_empty() {
        let set = set.join(" ");
        notice(&format!(
            "commands use variables of this shell instead of the context: `unset {set}` ends that"
        ));
    }
}

/// The name of a new context: the host; or the URL without its scheme if another server has that name,
/// whose API key would be lost.
fn name_of(client: &Client, contexts: &Contexts) -> String {
    let (url, host) = (client.url(), client.host());
    let is_free = contexts.contexts.get(host).is_none_or(|known| is_same_server(&known.url, url));
    let name = if is_free { host } else { url.split_once("://").map_or(url, |(_, rest)| rest) };
    name.to_owned()
}

fn read_key(url: &str) -> Result<String> {
    let failed = || Failure::of("the API key cannot be read");
    let mut key = String::new();
    if std::io::stdin().is_terminal() {
        let terminal = Term::stderr();
        terminal.write_str(&Stream::Stderr.shown(&format!("API key for {url}: "))).map_err(failed())?;
        key = terminal.read_secure_line().map_err(failed())?;
    } else {
        std::io::stdin().read_to_string(&mut key).map_err(failed())?;
    }
    match key.trim() {
        "" => Err(Failure::usage("no API key was given: type it, or send it to stdin")),
        key => Ok(key.to_owned()),
    }
}

pub(crate) async fn run_context(command: ContextCommand) -> Result<()> {
    let (contexts, path) = Contexts::of_user()?;
    match command {
        ContextCommand::List(output) => list(&contexts, output),
        ContextCommand::Use { name, store } => select(contexts, name, store, &path).await,
        ContextCommand::Env { name } => print_variables(&contexts, name.as_deref()).await,
        ContextCommand::Remove { name } => remove(contexts, &name, &path),
    }
}

fn list(contexts: &Contexts, output: OutputArgs) -> Result<()> {
    let rows = contexts.contexts.iter().map(|(name, context)| {
        let is_current = contexts.current.as_ref() == Some(name);
        json!({ "current": is_current, "name": name, "url": context.url, "store": context.store })
    });
    let columns = [
        ("CURRENT", "/current", Flag),
        ("NAME", "/name", Text),
        ("URL", "/url", Text),
        ("STORE", "/store", Text),
    ];
    Printer::new(output.output).items(&rows.collect::<Vec<_>>(), &columns, NO_CONTEXT)
}

async fn select(mut contexts: Contexts, name: String, store: Option<String>, path: &Path) -> Result<()> {
    contexts.find(Some(&name))?;
    if let (Some(store), Some(context)) = (store, contexts.contexts.get_mut(&name)) {
        let found = require_store(&client_of(context)?, &store).await;
        found.map_err(|failure| failure.within("the context was not changed"))?;
        context.store = Some(store);
    }
    let done = format!("the current context is {name}\n");
    contexts.current = Some(name);
    contexts.write(path)?;
    print(&done)?;
    tell_variables();
    Ok(())
}

/// Prints commands that set the variables of a context in a shell. The store is an id, also if the
/// context has its name: clients take no names.
async fn print_variables(contexts: &Contexts, name: Option<&str>) -> Result<()> {
    let none = || Failure::not_found(NO_CONTEXT);
    let (_, context) = contexts.find(name)?.ok_or_else(none)?;
    let store_id = match &context.store {
        Some(store) => Some(find_store(&client_of(context)?, store).await?),
        None => None,
    };
    let variables = [
        ("KEEPSAKE_URL", Some(&context.url)),
        ("KEEPSAKE_API_KEY", Some(&context.api_key)),
        ("KEEPSAKE_STORE", store_id.as_ref()),
    ];
    let lines = variables.map(|(variable, value)| match value {
        Some(value) => format!("export {variable}={}\n", shell_quoted(value)),
        None => format!("unset {variable}\n"),
    });
    print(&lines.concat())
}

fn client_of(context: &Context) -> Result<Client> {
    Client::new(&context.url, &context.api_key.as_str().into()).map_err(of_client)
}

fn remove(mut contexts: Contexts, name: &str, path: &Path) -> Result<()> {
    contexts.find(Some(name))?;
    contexts.contexts.remove(name);
    contexts.current.take_if(|current| current == name);
    contexts.write(path)?;
    print(&format!("removed the context {name}\n"))
}
