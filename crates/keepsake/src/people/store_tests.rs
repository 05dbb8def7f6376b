//! `keepsake test`

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use console::Style;
use keepsake_config::{Failure, cli::Result};
use serde_json::{Value, json};

use super::connection::Connection;
use super::text_of;
use crate::cli::{ConnectionArgs, OutputArgs, OutputFormat, ServerArgs, StoreArgs, StoreNameArgs};
use crate::failures::unreadable;
use crate::output::{counted, items_of, notice, print, print_styled, printable};

/// Hits of a broken test that are shown to people.
const SHOWN_HITS: usize = 3;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake test
  keepsake test --store team-notes -o junit > tests.xml
  keepsake test --file tests.yaml

The tests are in the memory `/.keepsake/tests.yaml` of the store, or in FILE:

  tests:
  - search: refund limit
    finds: /policy/refunds.md
    within: 3
  - max_files: 500

Ends with 1 if a test does not hold.")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    named: StoreNameArgs,
    /// Runs the tests of this file instead of the store's own
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "table", help_heading = "Output")]
    output: TestOutput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TestOutput {
    /// For people: a line for each test
    Table,
    /// One JSON document, as the API answers
    Json,
    /// One JSON object per line
    Jsonl,
    /// XML for CI systems
    Junit,
}

/// Runs the tests of a store; fails if one of them does not hold.
pub(crate) async fn run(args: TestArgs) -> Result<()> {
    let body = match &args.file {
        Some(file) => {
            json!({"tests": std::fs::read_to_string(file).map_err(unreadable(file.display()))?})
        }
        None => json!({}),
    };
    let format = args.output;
    let output = match format {
        TestOutput::Json => OutputFormat::Json,
        TestOutput::Jsonl => OutputFormat::Jsonl,
        TestOutput::Table | TestOutput::Junit => OutputFormat::Table,
    };
    let connection = ConnectionArgs { server: args.server, output: OutputArgs { output } };
    let connection = Connection::of_store(&StoreArgs { connection, named: args.named }).await?;
    let report = connection.post("the memory store cannot be tested", &["test"], body).await?;
    let results = items_of(&report, "data");
    match format {
        TestOutput::Json => connection.printer.done(&report, String::new)?,
        TestOutput::Jsonl => connection.printer.items(results, &[], "")?,
        TestOutput::Junit => print(&junit(&report, results))?,
        TestOutput::Table if results.is_empty() => notice("there are no tests in the file"),
        TestOutput::Table => print_styled(&lines(results))?,
    }
    let broken = results.iter().filter(|result| result["passed"] != true).count();
    if broken == 0 {
        return Ok(());
    }
    Err(Failure::new(format!("{broken} of {} did not hold", counted(results.len() as u64, "test"))))
}

/// A line for each test; a broken one has its reason and its first hits.
fn lines(results: &[Value]) -> String {
    let mut shown = String::new();
    for result in results {
        let (line, test) = (&result["line"], described(&result["test"]));
        // Writing to a string cannot fail.
        let _ = match result["message"].as_str() {
            None => writeln!(shown, "{}  line {line}: {test}", Style::new().green().apply_to("passed")),
            Some(why) => {
                let status = Style::new().red().bold().apply_to("broken");
                writeln!(shown, "{status}  line {line}: {test}\n        {}", printable(why))
            }
        };
        if result["passed"] != true {
            for (number, hit) in hits(result).enumerate().take(SHOWN_HITS) {
                let _ = writeln!(shown, "        {}. {hit}", number + 1);
            }
        }
    }
    shown
}

fn hits(result: &Value) -> impl Iterator<Item = String> {
    items_of(result, "hits").iter().map(|hit| printable(text_of(hit, "path")))
}

fn described(test: &Value) -> String {
    let field = |name| printable(text_of(test, name));
    let is_there = |name| !test[name].is_null();
    if is_there("search") {
        format!("search {} finds {} within {}", field("search"), field("finds"), test["within"])
    } else if is_there("path") {
        format!("{} contains {}", field("path"), field("contains"))
    } else if is_there("unchanged") {
        format!("{} is unchanged", field("unchanged"))
    } else {
        format!("at most {}", counted(test["max_files"].as_u64().unwrap_or_default(), "memory"))
    }
}

/// The results as a test suite in XML.
fn junit(report: &Value, results: &[Value]) -> String {
    let name = xml(text_of(report, "memory_store_id"));
    let broken = results.iter().filter(|result| result["passed"] != true).count();
    let counts = format!("tests=\"{}\" failures=\"{broken}\" errors=\"0\"", results.len());
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"{name}\" {counts}>\n"
    );
    for result in results {
        let case = xml(&format!("line {}: {}", result["line"], described(&result["test"])));
        let _ = write!(text, "    <testcase classname=\"{name}\" name=\"{case}\"");
        let _ = match result["message"].as_str() {
            None => writeln!(text, "/>"),
            Some(why) => {
                let (why, hits) = (xml(why), hits(result).collect::<Vec<_>>().join("\n"));
                writeln!(
                    text,
                    ">\n      <failure message=\"{why}\">{}</failure>\n    </testcase>",
                    xml(&hits)
                )
            }
        };
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// A text in XML, without the characters that XML cannot have.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(char),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            char if char.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_names_each_test_and_why_it_is_broken() {
        let results = [
            json!({"line": 3, "test": {"search": "a & <b>", "finds": "/x.md", "within": 3}, "passed": false,
                "message": "it is hit 7", "hits": [{"path": "/a\u{1}.md", "score": 2.0}, {"path": "/b.md", "score": 1.0}]}),
            json!({"line": 6, "test": {"max_files": 5}, "passed": true, "message": null, "hits": []}),
        ];
        let report = json!({"memory_store_id": "memstore_1", "data": results});
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <testsuites tests=\"2\" failures=\"1\" errors=\"0\">\n  \
            <testsuite name=\"memstore_1\" tests=\"2\" failures=\"1\" errors=\"0\">\n    \
            <testcase classname=\"memstore_1\" name=\"line 3: search a &amp; &lt;b&gt; finds /x.md within 3\">\n      \
            <failure message=\"it is hit 7\">/a\\u0001.md\n/b.md</failure>\n    </testcase>\n    \
            <testcase classname=\"memstore_1\" name=\"line 6: at most 5 memories\"/>\n  \
            </testsuite>\n</testsuites>\n";
        assert_eq!(junit(&report, &results), expected);
    }
}
