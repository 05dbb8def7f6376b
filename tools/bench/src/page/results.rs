//! The JSON files of a run.

use std::collections::BTreeMap;
use std::path::Path;

use keepsake_config::Failure;
use serde_json::Value;

use crate::report::median;

/// The measured pairs of database and place of content, as file names have them.
pub(super) const PAIRS: [(&str, &str); 2] = [("postgres-s3", "Postgres + S3"), ("sqlite", "SQLite")];

/// The files by name, without `.json`.
#[derive(Debug, Default)]
pub(super) struct Results(pub(super) BTreeMap<String, Value>);

impl Results {
    /// Reads every JSON file of a folder.
    ///
    /// # Errors
    /// [`Failure`] that names the file.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let unreadable = || Failure::of(format!("{} cannot be read", folder.display()));
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable())? {
            let path = entry.map_err(unreadable())?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")) else {
                continue;
            };
            let text = std::fs::read(&path);
            let text = text.map_err(Failure::of(format_args!("{} cannot be read", path.display())))?;
            let value = serde_json::from_slice(&text);
            let value = value.map_err(Failure::of(format_args!("{} is no JSON", path.display())))?;
            files.insert(name.to_owned(), value);
        }
        if files.is_empty() {
            return Err(Failure::new(format!("{} has no results", folder.display())));
        }
        Ok(Self(files))
    }

    /// A file.
    pub(super) fn file(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The finding of a scenario with a layout in a file.
    pub(super) fn finding(&self, file: &str, scenario: &str, layout: &str) -> Option<&Value> {
        let findings = self.file(file)?["results"].as_array()?;
        findings.iter().find(|found| found["scenario"] == scenario && found["layout"] == layout)
    }

    /// All findings of the runs of a pair, in the order of their files.
    pub(super) fn findings<'a>(&'a self, pair: &str) -> impl Iterator<Item = &'a Value> {
        let names = [pair.to_owned(), format!("{pair}-more")];
        names.into_iter().flat_map(|name| list(self.file(&name), "results"))
    }
}

/// The elements of an array; none if it is missing.
pub(super) fn list<'a>(object: Option<&'a Value>, field: &str) -> impl Iterator<Item = &'a Value> {
    object.and_then(|object| object[field].as_array()).into_iter().flatten()
}

/// The median over the rounds of one summary's figure divided by another's.
pub(super) fn ratio_of_rounds(of: &Value, to: &Value, figure: &str) -> Option<f64> {
    let rounds = of["rounds"].as_array()?.iter().zip(to["rounds"].as_array()?);
    let ratios: Vec<f64> = rounds
        .filter_map(|(of, to)| Some(of[figure].as_f64()? / to[figure].as_f64()?))
        .filter(|ratio| ratio.is_finite())
        .collect();
    median(&ratios)
}

/// Decimals of a small number that is not a count.
pub(super) const DECIMALS: usize = 2;

/// A number with as many digits as a reader needs, and a comma for thousands.
pub(super) fn figure(number: Option<f64>) -> String {
    figure_with(number, DECIMALS)
}

/// The same with at most this many decimals.
pub(super) fn figure_with(number: Option<f64>, decimals: usize) -> String {
    let Some(number) = number.filter(|number| number.is_finite()) else {
        return "–".to_owned();
    };
    let digits = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => decimals.min(1),
        _ => decimals,
    };
    let text = format!("{number:.digits$}");
    let whole = text.split('.').next().unwrap_or_default().len();
    if whole <= 3 || digits > 0 {
        return text;
    }
    let mut grouped = String::new();
    for (place, digit) in text.chars().enumerate() {
        if place > 0 && (whole - place).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_have_thousands_separators_and_few_digits() {
        for (number, text) in
            [(0.123, "0.12"), (12.34, "12.3"), (123.4, "123"), (1_234.0, "1,234"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(figure(Some(number)), text);
        }
        assert_eq!(figure(None), "–");
        assert_eq!(figure_with(Some(32.0), 0), "32");
    }

    #[test]
    fn ratios_compare_rounds_with_the_same_number() {
        let of = json!({"rounds": [{"x": 2.0}, {"x": 6.0}, {"x": 9.0}]});
        let to = json!({"rounds": [{"x": 1.0}, {"x": 2.0}, {"x": 1.0}]});
        assert_eq!(ratio_of_rounds(&of, &to, "x"), Some(3.0));
    }
}
