//! `keepsake memory search`

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use console::Style;
use keepsake_client::Client;
use keepsake_config::cli::Result;
use keepsake_engine::{MeaningReason, SearchMeaning};
use serde_json::Value;

use super::connection::{Connection, named_stores};
use super::{agent_path, api_folder, failure_of, text_of};
use crate::cli::StoreArgs;
use crate::output::{items_of, notice, print_styled, printable};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory search retry budget
  keepsake memory search '\"retry budget\" -draft' --path projects
  keepsake memory search deploy --all-stores
  keepsake memory search how do we ship --explain")]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Searches all memory stores that the API key may read, instead of one
    #[arg(long)]
    all_stores: bool,
    /// The words to find, or a question; \"a phrase\", -excluded, prefix*, path:directory/
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Searches only this directory
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Number of hits, 1 to 50
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u8).range(1..=50))]
    limit: u8,
    /// Shows what each score consists of: words and meaning
    #[arg(long)]
    explain: bool,
}

pub(super) async fn search(args: SearchArgs) -> Result<()> {
    let prefix = args.path.as_deref().map(api_folder).transpose()?;
    let (words, limit) = (args.query.join(" "), args.limit.to_string());
    let query = [
        ("query", Some(words.as_str())),
        ("path_prefix", prefix.as_deref()),
        ("limit", Some(limit.as_str())),
        ("explain", args.explain.then_some("true")),
    ];
    let connection = if args.all_stores {
        Connection::open(&args.store.connection)?
    } else {
        Connection::of_store(&args.store).await?
    };
    let found = connection.get("the search failed", &["search"], &query).await?;
    if let Some(text) = meaning_of(&found).and_then(|meaning| meaning.notice()) {
        notice(&text);
    }
    let hits = items_of(&found, "data");
    if !connection.printer.is_table() || hits.is_empty() {
        return connection.printer.list(&found, &[], "nothing was found");
    }
    let names = if args.all_stores { store_names(&connection.client).await? } else { BTreeMap::new() };
    let hits = hits.iter().map(|hit| {
        let place = printable(&format!("{}:{}", agent_path(text_of(hit, "path")), hit["line"]));
        let store_id = text_of(hit, "memory_store_id");
        let store = names.get(store_id).map_or(store_id, String::as_str);
        let store = if args.all_stores { format!("{}  ", printable(store)) } else { String::new() };
        format!(
            "{store}{}{}\n    {}\n",
            Style::new().bold().apply_to(place),
            explained(hit),
            highlight(text_of(hit, "snippet"))
        )
    });
    print_styled(&hits.collect::<Vec<_>>().join("\n"))
}

/// What the answer says about the search by meaning; `None`: the server has none.
pub(crate) fn meaning_of(found: &Value) -> Option<SearchMeaning> {
    let meaning = &found["meaning"];
    Some(SearchMeaning {
        used: meaning["used"].as_bool()?,
        pending: meaning["pending"].as_u64()?,
        reason: meaning["reason"].as_str().and_then(MeaningReason::parse),
    })
}

/// Both parts of the score of a hit, if the search explains them.
fn explained(hit: &Value) -> String {
    let part = |name: &str| hit["explanation"][name].as_f64();
    match (hit["score"].as_f64(), part("lexical"), part("meaning")) {
        (Some(score), Some(words), Some(meaning)) => {
            format!("  {score:.2} = words {words:.2} + meaning {meaning:.2}")
        }
        _ => String::new(),
    }
}

/// The names of all stores by id; none for the token of a session, which may not
/// list stores.
async fn store_names(client: &Client) -> Result<BTreeMap<String, String>> {
    match named_stores(client).await {
        Err(error) if error.status().is_some_and(|status| status == 403) => Ok(BTreeMap::new()),
        stores => Ok(stores.map_err(failure_of("the memory stores cannot be listed"))?.into_iter().collect()),
    }
}

/// A snippet in one line, with its matches in colour where the terminal has any.
fn highlight(snippet: &str) -> String {
    let line = printable(&snippet.split_whitespace().collect::<Vec<_>>().join(" "));
    let style = Style::new().yellow().bold();
    let mut parts = line.split('⟦');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (word, rest) = part.split_once('⟧').unwrap_or((part, ""));
        let _ = write!(text, "{}{rest}", style.apply_to(word));
    }
    text
}
