//! `docs/performance.md`, made from the results in a folder.
//!
//! The template has the prose; each figure comes from a JSON file, which a mode of
//! this program or `tools/bench/peers` wrote.

mod bars;
mod results;
mod tables;

use std::path::PathBuf;

use keepsake_config::Failure;

use results::Results;

const TEMPLATE: &str = include_str!("page/performance.md");

/// Options of `keepsake-bench report`.
#[derive(Debug, clap::Args)]
pub(super) struct PageArgs {
    /// The folder with the JSON files of `tools/bench/run`
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the page.
///
/// # Errors
/// [`Failure`] if the folder has no results, or a file of it is not JSON.
pub(super) fn print(args: &PageArgs) -> Result<(), Failure> {
    let results = Results::read(&args.folder)?;
    print!("{}", fill(&results)?);
    Ok(())
}

/// Replaces each `{{name}}` of the template by the part of that name.
fn fill(results: &Results) -> Result<String, Failure> {
    let mut page = String::new();
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) =
            after.split_once("}}").ok_or_else(|| Failure::new("the template has `{{` without `}}`"))?;
        page.push_str(before);
        page.push_str(&part(name, results)?);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

fn part(name: &str, results: &Results) -> Result<String, Failure> {
    let made = match name {
        "run" => Some(tables::run(results)),
        "bars" => Some(bars::table(results)),
        "throughput" => tables::throughput(results),
        "cpu" => tables::cpu(results),
        "requests" => tables::requests(results),
        "dollars" => tables::dollars(results),
        "prices" => Some(tables::prices()),
        "growth" => tables::growth(results),
        "sizes" => tables::sizes(results),
        "footprint" => tables::footprint(results),
        "import" => tables::import(results),
        "peers" => tables::peers(results),
        "peer_notes" => tables::peer_notes(results),
        "search" => tables::search(results),
        "console" => tables::console(results),
        "fairness" => tables::fairness(results),
        "readers" => tables::readers(results),
        "gates" => tables::gates(results),
        "meaning" => tables::meaning(results),
        "rls" => tables::row_level_security(results),
        "scanner" => tables::scanner(results),
        _ => {
            return Err(Failure::new(format!("the template names an unknown part `{name}`")));
        }
    };
    Ok(made.unwrap_or_else(|| "Not measured in this run.".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_without_results_marks_every_bar_as_not_measured() {
        let page = fill(&Results::default()).unwrap();
        assert!(!page.contains("{{"), "{page}");
        assert!(page.contains("not measured"), "{page}");
        assert!(!page.contains("| met |"), "{page}");
    }
}
