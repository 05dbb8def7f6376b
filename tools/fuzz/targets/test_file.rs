//! Files of tests: every text is a file or is refused with a line that it has, and a file in another form has the
//! same tests.

#![no_main]

use std::fmt::Write as _;

use keepsake_core::TestFile;
use keepsake_core::test_file::{Expectation, MAX_TEST_FILE_BYTES, MAX_TESTS, MAX_WITHIN};
use libfuzzer_sys::fuzz_target;

/// A text in quotes, with most characters as their numbers.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            'a'..='z' | '/' | '.' | ' ' => quoted.push(letter),
            other => write!(quoted, "\\U{:08x}", u32::from(other)).unwrap(),
        }
    }
    quoted + "\""
}

/// The file in another form.
fn written(file: &TestFile) -> String {
    let mut text = format!("{{gate: {}, tests: [", file.is_gate);
    for test in &file.tests {
        match &test.expected {
            Expectation::Search { search, finds, within } => {
                let (search, finds) = (quoted(search), quoted(finds.as_str()));
                write!(text, "{{search: {search}, finds: {finds}, within: {within}}}").unwrap();
            }
            Expectation::Contains { path, contains } => {
                write!(text, "{{path: {}, contains: {}}}", quoted(path.as_str()), quoted(contains)).unwrap();
            }
            Expectation::Unchanged { unchanged } => {
                write!(text, "{{unchanged: {}}}", quoted(&unchanged.to_string())).unwrap();
            }
            Expectation::MaxFiles { max_files } => write!(text, "{{max_files: {max_files}}}").unwrap(),
        }
        text.push_str(",\n");
    }
    text + "]}"
}

fuzz_target!(|text: &str| {
    match TestFile::parse(text) {
        Ok(file) => {
            assert!(file.tests.len() <= MAX_TESTS);
            let lines = text.lines().count();
            for test in &file.tests {
                assert!((1..=lines).contains(&test.line));
                if let Expectation::Search { within, .. } = test.expected {
                    assert!((1..=MAX_WITHIN).contains(&within));
                }
            }
            let again = written(&file);
            if let Ok(again) = TestFile::parse(&again) {
                let expected =
                    |file: &TestFile| file.tests.iter().map(|test| test.expected.clone()).collect::<Vec<_>>();
                assert_eq!((again.is_gate, expected(&again)), (file.is_gate, expected(&file)));
            } else {
                assert!(again.len() > MAX_TEST_FILE_BYTES, "{again}");
            }
        }
        Err(error) => {
            assert!(!error.rule.is_empty());
            assert!(error.line >= 1 && error.line <= text.split('\n').count() + 1, "{error}");
        }
    }
});
