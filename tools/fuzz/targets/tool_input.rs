//! The memory tool and the agent tools: any sequence of calls on a store that
//! is a map.
//!
//! The input is a sequence of JSON values. Each is the input of a call: of the
//! agent tool in its field `tool`, else of the memory tool. Every edit is
//! compared with a naive implementation, every view with the viewed content.

#![no_main]

use std::collections::BTreeMap;

use keepsake_core::content::first_line;
use keepsake_core::tool::agent::{AgentCall, AgentTool, Replacement, apply_edits, read};
use keepsake_core::tool::{
    Command, Edit, ToolError, ToolInput, ToolPath, ToolRoot, append, insert, line_end, str_replace,
    view_file, with_line_end,
};
use keepsake_core::{Content, DirPath, MemoryPath, MendedJson};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

const LIMIT_BYTES: u64 = 2_000;
const VIEW_CHARS: u64 = 120;

#[derive(Debug, Default, Clone, PartialEq)]
struct Store(BTreeMap<MemoryPath, String>);

impl Store {
    fn file(&self, path: &ToolPath) -> Option<&String> {
        self.0.get(path.memory()?)
    }

    /// The files below a directory.
    fn below(&self, directory: &DirPath) -> Vec<MemoryPath> {
        self.0.keys().filter(|path| path.is_below(directory)).cloned().collect()
    }

    fn is_free(&self, path: &MemoryPath) -> bool {
        let is_file = |path: &str| self.0.keys().any(|file| file.as_str() == path);
        !is_file(path.as_str())
            && self.below(&path.as_dir()).is_empty()
            && !path.ancestor_files().any(is_file)
    }

    fn write(&mut self, path: &MemoryPath, text: String) {
        if let Ok(content) = Content::new(text, LIMIT_BYTES) {
            assert!(first_line(content.as_str()).chars().count() <= 120);
            self.0.insert(path.clone(), content.as_str().to_owned());
        }
    }

    fn apply(&mut self, command: &Command) {
        match command {
            Command::View { path, view_range, offset } => {
                if let Some(text) = self.file(path) {
                    check_view(path, text, *view_range);
                    let _ = view_file(path, text, *view_range, *offset, VIEW_CHARS);
                }
            }
            Command::Create { path, file_text } => {
                if let Some(path) = path.memory().filter(|path| self.is_free(path)) {
                    self.write(path, file_text.clone());
                }
            }
            Command::StrReplace { path, old_str, new_str } => {
                if let Some(edit) = self.file(path).and_then(|text| replaced(path, text, old_str, new_str)) {
                    self.keep(path, edit);
                }
            }
            Command::Insert { path, insert_line, insert_text } => {
                let edit = self.file(path).and_then(|text| inserted(text, *insert_line, insert_text));
                if let Some(edit) = edit {
                    self.keep(path, edit);
                }
            }
            Command::Delete { path } => {
                let directory = path.dir();
                self.0.retain(|file, _| Some(file) != path.memory() && !file.is_below(&directory));
            }
            Command::Rename { old_path, new_path } => self.rename(old_path, new_path),
        }
    }

    fn apply_agents(&mut self, call: &AgentCall) {
        match call {
            AgentCall::List { path, .. } | AgentCall::Search { path, .. } => {
                assert!(self.below(&path.dir()).len() <= self.0.len());
            }
            AgentCall::Read { path, offset, limit } => {
                if let Some(text) = self.file(path) {
                    check_read(path, text, *offset, *limit);
                }
            }
            AgentCall::Write { path, content, .. } => {
                if let Some(path) = path.memory()
                    && (self.0.contains_key(path) || self.is_free(path))
                {
                    self.write(path, content.clone());
                }
            }
            AgentCall::Edit { path, edits, .. } => {
                let edit = self.file(path).and_then(|text| edited(path, text, edits));
                if let (Some(edit), Some(path)) = (edit, path.memory()) {
                    self.write(path, edit.content);
                }
            }
            AgentCall::Append { path, content, .. } => {
                let Some(memory) = path.memory() else { return };
                let before = self.file(path).cloned();
                if before.is_none() && !self.is_free(memory) {
                    return;
                }
                let before = before.unwrap_or_default();
                let after = append(&before, content).content;
                assert!(after.starts_with(&before) && after.ends_with('\n'));
                let end = end_of(&before, content);
                assert!(after.contains(with_line_end(content, end).trim_end_matches(end)));
                self.write(memory, after);
            }
            AgentCall::Delete { path, .. } => {
                let directory = path.dir();
                self.0.retain(|file, _| Some(file) != path.memory() && !file.is_below(&directory));
            }
        }
    }

    fn keep(&mut self, path: &ToolPath, edit: Edit) {
        assert!(!edit.to_message("edited".to_owned(), VIEW_CHARS).is_empty());
        if let Some(path) = path.memory() {
            self.write(path, edit.content);
        }
    }

    /// Moves a file or a directory, all of it or nothing.
    fn rename(&mut self, old_path: &ToolPath, new_path: &ToolPath) {
        let (Some(old), Some(new)) = (old_path.memory(), new_path.memory()) else {
            return;
        };
        if !self.is_free(new) || new.is_below(&old.as_dir()) {
            return;
        }
        if let Some(text) = self.0.remove(old) {
            if self.is_free(new) {
                self.0.insert(new.clone(), text);
            } else {
                self.0.insert(old.clone(), text);
            }
            return;
        }
        let (from, to) = (old.as_dir(), new.as_dir());
        let files = self.below(&from);
        let Ok(moved) = files.iter().map(|file| file.rebased(&from, &to)).collect::<Result<Vec<_>, _>>()
        else {
            return;
        };
        for (file, moved) in files.iter().zip(moved) {
            assert_eq!(moved.rebased(&to, &from).as_ref(), Ok(file));
            let text = self.0.remove(file).unwrap();
            self.0.insert(moved, text);
        }
    }

    /// What holds of every store.
    fn assert_whole(&self) {
        for (path, text) in &self.0 {
            assert!(text.len() as u64 <= LIMIT_BYTES && !text.contains('\0'));
            assert_eq!(MemoryPath::parse(path.as_str()).as_ref(), Ok(path));
            assert!(!path.ancestor_files().any(|above| self.0.keys().any(|file| file.as_str() == above)));
        }
    }
}

/// Edits are what single replacements are, and the snippets lines of the result.
fn edited(path: &ToolPath, text: &str, edits: &[Replacement]) -> Option<Edit> {
    let mut expected = Ok(text.to_owned());
    for edit in edits {
        expected = expected.and_then(|text| {
            let replaced = str_replace(path, &text, &edit.old_str, &edit.new_str);
            replaced.map(|edit| edit.content)
        });
    }
    let edited = apply_edits(path, text, edits);
    assert_eq!(edited.as_ref().map(|edit| &edit.content).ok(), expected.as_ref().ok());
    let edited = edited.ok()?;
    let lines: Vec<_> = edited.content.split('\n').collect();
    for max_chars in [0, VIEW_CHARS, u64::MAX] {
        let mut chars = 0;
        for snippet in edited.snippets(max_chars) {
            chars += snippet.text.chars().count() as u64;
            if !snippet.text.is_empty() {
                let shown: Vec<_> = snippet.text.split('\n').collect();
                let first = snippet.first_line - 1;
                for (line, shown) in lines[first..].iter().zip(&shown) {
                    assert!(line == shown || snippet.is_cut && shown.ends_with(" more characters]"));
                }
            }
        }
        assert!(chars <= max_chars);
    }
    Some(edited)
}

/// Parts from an offset on to the end are the text from there on.
fn check_read(path: &ToolPath, text: &str, offset: u64, limit: Option<u64>) {
    let total = text.chars().count() as u64;
    let (mut next, mut all) = (Some(offset), String::new());
    while let Some(from) = next {
        let Ok(part) = read(path, text, from, limit, VIEW_CHARS) else {
            assert!(from > total);
            return;
        };
        assert!(part.content.chars().count() as u64 <= limit.unwrap_or(VIEW_CHARS).min(VIEW_CHARS));
        all.push_str(&part.content);
        next = part.next_offset;
        assert!(next.is_none_or(|next| next > from));
    }
    let rest: String = text.chars().skip(usize::try_from(offset).unwrap()).collect();
    assert_eq!(all, rest);
}

fn replaced(path: &ToolPath, text: &str, old_str: &str, new_str: &str) -> Option<Edit> {
    let starts = |old_str: &str| {
        let places = text.char_indices().map(|(place, _)| place);
        places.filter(|place| text[*place..].starts_with(old_str)).collect::<Vec<_>>()
    };
    match str_replace(path, text, old_str, new_str) {
        Ok(edit) => {
            assert_eq!(starts(old_str).len(), 1);
            let new_str = match line_end(text).filter(|_| !old_str.contains(['\r', '\n'])) {
                Some(end) => with_line_end(new_str, end),
                None => new_str.into(),
            };
            assert_eq!(edit.content, text.replacen(old_str, &new_str, 1));
            Some(edit)
        }
        Err(ToolError::EmptyOldStr) => {
            assert!(old_str.is_empty());
            None
        }
        Err(ToolError::NoMatch { .. }) => {
            assert!(!text.contains(old_str));
            None
        }
        Err(ToolError::ManyMatches { lines, .. }) => {
            let line_of = |place: &usize| text[..*place].matches('\n').count() + 1;
            assert_eq!(lines, starts(old_str).iter().map(line_of).collect::<Vec<_>>());
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// The line end of new lines.
fn end_of(text: &str, new: &str) -> &'static str {
    line_end(text).or_else(|| line_end(new)).unwrap_or("\n")
}

fn inserted(text: &str, line: i64, insert_text: &str) -> Option<Edit> {
    let end = end_of(text, insert_text);
    let whole =
        if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}{end}") };
    let mut lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let place = usize::try_from(line).ok().filter(|place| *place <= lines.len());
    let edit = insert(text, line, insert_text).ok();
    assert_eq!(edit.is_some(), place.is_some());
    let new = format!("{}{end}", with_line_end(insert_text, end).trim_end_matches(end));
    lines.insert(place?, &new);
    let expected = lines.concat();
    assert_eq!(edit.as_ref().map(|edit| edit.content.as_str()), Some(expected.as_str()));
    edit
}

/// Views from a range on to its end: the lines come once each, in their order.
fn check_view(path: &ToolPath, text: &str, view_range: Option<(i64, i64)>) {
    let lines: Vec<_> = text.split('\n').collect();
    let count = i64::try_from(lines.len()).unwrap();
    let (first, last) = view_range.unwrap_or((1, -1));
    let mut next = first;
    loop {
        let Ok(shown) = view_file(path, text, Some((next, last)), 0, VIEW_CHARS) else {
            let is_open = last == -1;
            assert!(next < 1 || next > count || !is_open && last < next, "{next} {last}");
            return;
        };
        let body = shown.split_once(" with line numbers:\n").unwrap().1;
        let (body, notice) = match body.rsplit_once("\n\n[Line") {
            Some((body, notice)) if body.chars().count() as u64 <= VIEW_CHARS => (body, Some(notice)),
            _ => (body, None),
        };
        assert!(body.chars().count() as u64 <= VIEW_CHARS);
        // A text may have a line that looks like a notice.
        if text.contains("[Line") || text.contains("with line numbers:") {
            return;
        }
        let numbered: Vec<_> = body.split('\n').map(|line| line.split_once('\t').unwrap()).collect();
        for (number, line) in &numbered {
            assert_eq!(number.trim(), next.to_string());
            let whole = lines[usize::try_from(next).unwrap() - 1];
            assert!(*line == whole || notice.is_some() && whole.starts_with(line));
            next += 1;
        }
        let is_done = next > count || last != -1 && next > last;
        assert!(is_done || notice.is_some());
        if is_done {
            return;
        }
    }
}

/// Checks that the replacement makes every text valid Unicode, and changes no valid document.
fn check_mended(data: &[u8]) {
    let is_valid = serde_json::from_slice::<Value>(data).is_ok();
    if let Some(mended) = MendedJson::of(data) {
        assert!(!is_valid && mended.json.len() <= data.len());
        assert_eq!(MendedJson::of(&mended.json), None);
    }
}

fuzz_target!(|data: &[u8]| {
    check_mended(data);
    let mut store = Store::default();
    let calls = serde_json::Deserializer::from_slice(data).into_iter::<Map<String, Value>>();
    for mut input in calls.map_while(Result::ok).take(32) {
        let before = store.clone();
        let tool = input.remove("tool");
        if let Some(tool) = tool.as_ref().and_then(Value::as_str).and_then(AgentTool::parse) {
            match AgentCall::parse(tool, &input, &ToolRoot::Store) {
                Ok(call) => {
                    assert_eq!(call.tool(), tool);
                    store.apply_agents(&call);
                    assert!(tool.is_change() || store == before);
                    store.assert_whole();
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            continue;
        }
        match Command::parse(&input, &ToolRoot::Store) {
            Ok(command) => {
                store.apply(&command);
                assert!(command.is_change() || store == before);
                store.assert_whole();
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
