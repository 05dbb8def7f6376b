use std::collections::BTreeMap;

use super::*;

/// The example configuration of the page.
fn example() -> String {
    // Where the test runs: a build may be that of another copy.
    let this_crate = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let page = Path::new(&this_crate).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, example) = page.split_once("```toml\n").unwrap();
    example.split_once("```").unwrap().0.to_owned()
}

/// The lines of each section, without the marks of comments.
fn sections(toml: &str) -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut section = String::new();
    for line in toml.lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line.split(']').next().and_then(|name| name.strip_prefix('[')) {
            name.trim_matches('[').clone_into(&mut section);
        }
        let lines = sections.entry(section.clone()).or_default();
        lines.push_str(line);
        lines.push('\n');
    }
    sections
}

#[test]
fn every_key_is_documented_in_its_section() {
    let sections = sections(&example());
    for key in keys() {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", &key));
        // An array of tables has a section for its keys.
        let is_documented = sections.contains_key(&key)
            || sections.get(section).is_some_and(|lines| {
                let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
                lines.split(|letter| !is_word(letter)).any(|word| word == name)
            });
        assert!(is_documented, "{key} is not in docs/configuration.md");
    }
}

#[test]
fn documented_defaults_match_the_code() {
    let example = example();
    let documented = toml::from_str::<toml::Table>(&File::new(&example).sources(&[]).merge().to_toml());
    let documented = documented.unwrap();
    File::new(&example).settings(&[]).unwrap();
    let defaults: toml::Table = Sources::default().merge().to_toml().parse().unwrap();
    for (section, values) in defaults {
        // Only `role` is at the top level.
        let Some(values) = values.as_table() else {
            assert_eq!(documented[&section], values);
            continue;
        };
        for (name, value) in values {
            assert_eq!(documented[&section].get(name), Some(value), "{section}.{name}");
            let is_set = example.lines().any(|line| line.starts_with(&format!("{name} = ")));
            let is_stated =
                example.contains(&format!("# {name} = ")) && example.contains(&format!("default {value}"));
            assert!(is_set || is_stated, "the default of {section}.{name} is not documented");
        }
    }
}
