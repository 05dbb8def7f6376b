//! The file of a store's tests, `/.keepsake/tests.yaml`.
//!
//! YAML without anchors, aliases, tags and directives, so that a small file stays small when it is read.

use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, options};
use serde::Serialize;
use utoipa::ToSchema;

use crate::path::{DirPath, Echo, MemoryPath};

pub const MAX_TEST_FILE_BYTES: usize = 64 << 10;
pub const MAX_TESTS: usize = 200;
/// The largest `within`, and its default.
pub const MAX_WITHIN: usize = 50;
const DEFAULT_WITHIN: usize = 10;
/// Maximum characters of a query, as for every search.
const MAX_QUERY_CHARS: usize = 1_000;
/// Collections in collections; a file has a list of mappings in a mapping.
const MAX_NESTING: usize = 4;

/// The tests of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestFile {
    /// Whether changes of many memories are refused if a test is broken afterwards.
    pub is_gate: bool,
    pub tests: Vec<StoreTest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTest {
    /// The line that the test begins in, counted from 1.
    pub line: usize,
    pub expected: Expectation,
}

/// What a test expects of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = MemoryStoreTest)]
pub enum Expectation {
    /// A search has the memory among its first hits.
    Search {
        /// The query of the search.
        search: String,
        /// The memory to find.
        finds: MemoryPath,
        /// The number of first hits; 10 by default.
        #[schema(minimum = 1, maximum = 50)]
        within: usize,
    },
    /// The memory exists, and its content has the text.
    Contains { path: MemoryPath, contains: String },
    /// A change of many memories leaves this memory, or the memories below this directory, as they are.
    Unchanged {
        #[schema(value_type = String)]
        unchanged: Area,
    },
    /// The store has at most this many memories.
    MaxFiles { max_files: u64 },
}

/// A memory, or the memories below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Area {
    Memory(MemoryPath),
    Directory(DirPath),
}

impl Area {
    pub fn has(&self, path: &MemoryPath) -> bool {
        match self {
            Self::Memory(memory) => memory == path,
            Self::Directory(directory) => path.is_below(directory),
        }
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(path) => path.fmt(f),
            Self::Directory(path) => path.fmt(f),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Search { search, finds, within } => {
                write!(f, "search `{}` finds `{finds}` within {within}", Echo(search))
            }
            Self::Contains { path, contains } => write!(f, "`{path}` contains `{}`", Echo(contains)),
            Self::Unchanged { unchanged } => write!(f, "`{unchanged}` is unchanged"),
            Self::MaxFiles { max_files } => write!(f, "max_files {max_files}"),
        }
    }
}

/// Why a text is not a file of tests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {rule}")]
pub struct TestFileError {
    pub line: usize,
    pub rule: String,
}

fn error(line: usize, rule: impl Into<String>) -> TestFileError {
    TestFileError { line, rule: rule.into() }
}

impl From<ScanError> for TestFileError {
    fn from(found: ScanError) -> Self {
        error(found.marker().line(), format!("is not valid YAML: {}", found.info()))
    }
}

impl TestFile {
    /// Whether a test reads the content of a memory.
    pub fn reads(&self, memory: &MemoryPath) -> bool {
        let is_read =
            |test: &StoreTest| matches!(&test.expected, Expectation::Contains { path, .. } if path == memory);
        self.tests.iter().any(is_read)
    }

    /// The keys of the file.
    const KEYS: &[&str] = &["gate", "tests"];

    pub fn parse(text: &str) -> Result<Self, TestFileError> {
        if text.len() > MAX_TEST_FILE_BYTES {
            let rule =
                format!("the file has {} bytes, over its limit of {MAX_TEST_FILE_BYTES} bytes", text.len());
            return Err(error(1, rule));
        }
        let mut reader = Reader::of(text);
        let mut file = Self::default();
        let mut known = Vec::new();
        if !reader.begins()? {
            return Err(error(1, "the file has no tests"));
        }
        let (event, line) = reader.next()?;
        if !matches!(event, Event::MappingStart(..)) {
            return Err(error(line, "the file must be a mapping with the keys `gate` and `tests`"));
        }
        while let Some((key, line)) = reader.key(&mut known)? {
            match key.as_str() {
                "gate" => file.is_gate = reader.scalar(&key)?.flag(&key)?,
                "tests" => file.tests = reader.tests()?,
                _ => return Err(unknown_key(line, &key, "the file", Self::KEYS)),
            }
        }
        reader.ends()?;
        Ok(file)
    }
}

/// The kind of a test: its first key, and its other keys.
const KINDS: [(&str, &[&str]); 4] =
    [("search", &["finds", "within"]), ("path", &["contains"]), ("unchanged", &[]), ("max_files", &[])];

/// A value, with the line to name in an error.
struct Scalar {
    text: String,
    is_plain: bool,
    line: usize,
}

impl Scalar {
    fn flag(&self, key: &str) -> Result<bool, TestFileError> {
        match self.text.as_str() {
            "true" if self.is_plain => Ok(true),
            "false" if self.is_plain => Ok(false),
            _ => Err(error(self.line, format!("`{key}` must be true or false"))),
        }
    }

    fn number(&self, key: &str, least: u64, most: u64) -> Result<u64, TestFileError> {
        let number = self.text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        let rule = || format!("`{key}` must be a whole number from {least} to {most}");
        number.filter(|_| self.is_plain).ok_or_else(|| error(self.line, rule()))
    }

    /// A text of at least one character.
    fn text(&self, key: &str) -> Result<String, TestFileError> {
        let is_null = self.is_plain && matches!(self.text.as_str(), "~" | "null");
        if self.text.is_empty() || is_null {
            return Err(error(self.line, format!("`{key}` must not be empty")));
        }
        Ok(self.text.clone())
    }

    fn path(&self, key: &str) -> Result<MemoryPath, TestFileError> {
        let path = MemoryPath::parse_normalised(&self.text);
        path.map_err(|rule| error(self.line, format!("`{key}` {rule}")))
    }

    fn area(&self, key: &str) -> Result<Area, TestFileError> {
        if self.text == "/" {
            return Ok(Area::Directory(DirPath::root()));
        }
        let Some(directory) = self.text.strip_suffix('/') else {
            return self.path(key).map(Area::Memory);
        };
        let path = MemoryPath::parse_normalised(directory);
        let path = path.map_err(|rule| error(self.line, format!("`{key}` {rule}")))?;
        Ok(Area::Directory(path.as_dir()))
    }
}

/// The keys and values of a test.
struct Fields {
    line: usize,
    fields: Vec<(String, Scalar)>,
}

impl Fields {
    fn get(&self, key: &str) -> Option<&Scalar> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn required(&self, key: &str, of: &str) -> Result<&Scalar, TestFileError> {
        self.get(key).ok_or_else(|| error(self.line, format!("a test with `{of}` must have `{key}`")))
    }

    fn into_test(self) -> Result<StoreTest, TestFileError> {
        let kind = KINDS.iter().find(|(kind, _)| self.get(kind).is_some());
        let Some((kind, others)) = kind else {
            let (line, names) = (self.line, quoted(&KINDS.map(|(kind, _)| kind)));
            return Err(match self.fields.first() {
                Some((key, value)) if !KINDS.iter().any(|(_, others)| others.contains(&key.as_str())) => {
                    error(
                        value.line,
                        format!("`{}` is not a key of a test, which has one of {names}", Echo(key)),
                    )
                }
                _ => error(line, format!("a test must have one of {names}")),
            });
        };
        let is_other = |(key, _): &&(String, Scalar)| key != kind && !others.contains(&key.as_str());
        if let Some((key, value)) = self.fields.iter().find(is_other) {
            let keys: Vec<_> = [&[*kind], *others].concat();
            return Err(unknown_key(value.line, key, &format!("a test with `{kind}`"), &keys));
        }
        let first = self.required(kind, kind)?;
        let expected = match *kind {
            "search" => {
                let search = first.text(kind)?;
                let chars = search.chars().count();
                if chars > MAX_QUERY_CHARS {
                    let rule =
                        format!("`search` has {chars} characters, over the limit of {MAX_QUERY_CHARS}");
                    return Err(error(first.line, rule));
                }
                let within = self.get("within").map(|within| within.number("within", 1, MAX_WITHIN as u64));
                let within = within.transpose()?.and_then(|within| usize::try_from(within).ok());
                Expectation::Search {
                    search,
                    finds: self.required("finds", kind)?.path("finds")?,
                    within: within.unwrap_or(DEFAULT_WITHIN),
                }
            }
            "path" => Expectation::Contains {
                path: first.path(kind)?,
                contains: self.required("contains", kind)?.text("contains")?,
            },
            "unchanged" => Expectation::Unchanged { unchanged: first.area(kind)? },
            _ => Expectation::MaxFiles { max_files: first.number(kind, 0, u64::from(u32::MAX))? },
        };
        Ok(StoreTest { line: self.line, expected })
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn unknown_key(line: usize, key: &str, of: &str, known: &[&str]) -> TestFileError {
    error(line, format!("the key `{}` is unknown: {of} has {}", Echo(key), quoted(known)))
}

struct Reader<'a>(Parser<'a, StrInput<'a>>);

impl<'a> Reader<'a> {
    fn of(text: &'a str) -> Self {
        let options = options! {
            disallow_directives: true,
            flow_nesting_limit: MAX_NESTING,
            block_nesting_limit: MAX_NESTING,
        };
        Self(Parser::new_from_str_with_options(text, options))
    }

    /// The next event, with its line.
    fn next(&mut self) -> Result<(Event<'a>, usize), TestFileError> {
        let (event, span): (Event<'a>, Span) =
            self.0.next_event().ok_or_else(|| error(1, "the file ends too early"))??;
        let line = span.start.line();
        let (anchor, tag) = match &event {
            Event::Alias(_) | Event::UnresolvedAlias(_) | Event::Anchor(..) => (1, &None),
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(_, anchor, tag)
            | Event::MappingStart(_, anchor, tag) => (*anchor, tag),
            _ => (0, &None),
        };
        if anchor != 0 || tag.is_some() {
            return Err(error(line, "anchors, aliases and tags of YAML are not allowed"));
        }
        Ok((event, line))
    }

    /// Whether the text has a document.
    fn begins(&mut self) -> Result<bool, TestFileError> {
        self.next()?;
        Ok(!matches!(self.next()?.0, Event::StreamEnd))
    }

    /// Requires that nothing follows the document.
    fn ends(&mut self) -> Result<(), TestFileError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentStart(..), line) => {
                    return Err(error(line, "the file must have only one document"));
                }
                _ => {}
            }
        }
    }

    /// The next key of a mapping with its line; `None` at the end of the mapping.
    fn key(&mut self, known: &mut Vec<String>) -> Result<Option<(String, usize)>, TestFileError> {
        match self.next()? {
            (Event::MappingEnd, _) => Ok(None),
            (Event::Scalar(key, ..), line) => {
                let key = key.into_owned();
                if known.contains(&key) {
                    return Err(error(line, format!("the key `{}` is there twice", Echo(&key))));
                }
                known.push(key.clone());
                Ok(Some((key, line)))
            }
            (_, line) => Err(error(line, "a key must be a word")),
        }
    }

    fn scalar(&mut self, key: &str) -> Result<Scalar, TestFileError> {
        match self.next()? {
            (Event::Scalar(text, style, ..), line) => {
                Ok(Scalar { text: text.into_owned(), is_plain: style == ScalarStyle::Plain, line })
            }
            (_, line) => {
                Err(error(line, format!("`{}` must be one value, not a list or a mapping", Echo(key))))
            }
        }
    }

    fn tests(&mut self) -> Result<Vec<StoreTest>, TestFileError> {
        let (event, line) = self.next()?;
        if !matches!(event, Event::SequenceStart(..)) {
            return Err(error(line, "`tests` must be a list"));
        }
        let mut tests = Vec::new();
        loop {
            let line = match self.next()? {
                (Event::SequenceEnd, _) => return Ok(tests),
                (Event::MappingStart(..), line) => line,
                (_, line) => return Err(error(line, "a test must be a mapping, such as `max_files: 500`")),
            };
            if tests.len() == MAX_TESTS {
                return Err(error(line, format!("the file has more than {MAX_TESTS} tests")));
            }
            let (mut fields, mut known) = (Vec::new(), Vec::new());
            while let Some((key, line)) = self.key(&mut known)? {
                let value = Scalar { line, ..self.scalar(&key)? };
                fields.push((key, value));
            }
            tests.push(Fields { line, fields }.into_test()?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_its_tests_with_their_lines() {
        let text = "# first\ngate: true\ntests:\n- search: refund limit\n  finds: /policy/refunds.md\n  within: 3\n\
            - {path: /a.md, contains: 200}\n- unchanged: /pinned/\n- unchanged: \"/cafe\u{301}.md\"\n- max_files: 500\n\
            - search: 'a'\n  finds: /b\n";
        let file = TestFile::parse(text).unwrap();
        assert!(file.is_gate);
        let shown: Vec<_> = file.tests.iter().map(|test| (test.line, test.expected.to_string())).collect();
        let expected = [
            (4, "search `refund limit` finds `/policy/refunds.md` within 3"),
            (7, "`/a.md` contains `200`"),
            (8, "`/pinned/` is unchanged"),
            (9, "`/café.md` is unchanged"),
            (10, "max_files 500"),
            (11, "search `a` finds `/b` within 10"),
        ];
        assert_eq!(shown, expected.map(|(line, text)| (line, text.to_owned())));
        assert_eq!(TestFile::parse("tests: []").unwrap(), TestFile::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, named) in [
            ("", 1, "has no tests"),
            ("- a", 1, "must be a mapping"),
            ("tests: 1", 1, "`tests` must be a list"),
            ("gate: yes\n", 1, "`gate` must be true or false"),
            ("gate: true\ngate: true\n", 2, "`gate` is there twice"),
            ("gate: true\ntest: []\n", 2, "`test` is unknown: the file has `gate`, `tests`"),
            ("tests:\n- 1\n", 2, "must be a mapping"),
            ("tests:\n- {}\n", 2, "must have one of `search`, `path`, `unchanged`, `max_files`"),
            ("tests:\n- findz: /a\n", 2, "`findz` is not a key of a test"),
            ("tests:\n- search: a\n  findz: /a\n", 3, "`findz` is unknown: a test with `search` has"),
            ("tests:\n- search: a\n", 2, "must have `finds`"),
            ("tests:\n- search: a\n  finds: a\n", 3, "`finds` must start with `/`"),
            ("tests:\n- search: ~\n  finds: /a\n", 2, "`search` must not be empty"),
            ("tests:\n- search: a\n  finds: /a\n  within: 51\n", 4, "`within` must be a whole number"),
            ("tests:\n- path: /a\n  contains: [b]\n", 3, "`contains` must be one value"),
            ("tests:\n- unchanged: pinned/\n", 2, "`unchanged` must start with `/`"),
            ("tests:\n- max_files: -1\n", 2, "`max_files` must be a whole number"),
            ("gate: !!bool true\n", 1, "anchors, aliases and tags"),
            ("gate: true\n---\ngate: true\n", 2, "only one document"),
            ("[[[[[[[[", 1, ""),
        ] {
            let error = TestFile::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.rule.contains(named), "{text:?}: {error}");
        }
        let many = format!("tests:\n{}", "- max_files: 1\n".repeat(MAX_TESTS + 1));
        assert_eq!(TestFile::parse(&many).unwrap_err().line, MAX_TESTS + 2);
        let long = "#".repeat(MAX_TEST_FILE_BYTES + 1);
        assert!(TestFile::parse(&long).unwrap_err().rule.contains("65536"));
    }
}
