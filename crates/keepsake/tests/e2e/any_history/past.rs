//! The past of a store, compared with what the model was after each version.

use super::History;
use super::model::Version;
use crate::prelude::*;

/// A memory at a point: its place among the memories and its version.
type State<'a> = BTreeMap<usize, (usize, &'a Version)>;

/// What was there after the first `seq` versions, without what was erased since.
fn state(history: &History, seq: usize) -> State<'_> {
    let mut state = State::new();
    for (number, version) in history.model.versions.iter().enumerate().take(seq) {
        match version.operation {
            _ if version.is_erased => None,
            "deleted" => state.remove(&version.memory),
            _ => state.insert(version.memory, (number, version)),
        };
    }
    state
}

impl History {
    /// Compares every third point of the history with the model, also its directories and the
    /// differences between points.
    pub(super) async fn check_past(&self) {
        let newest = self.model.versions.len();
        for seq in (newest % 3..=newest).step_by(3) {
            self.check_list(seq, &format!("at_seq={seq}&limit={}", 3 + seq % 7)).await;
            self.check_children(seq).await;
            self.check_memory(seq).await;
            self.check_differences(seq, newest.min(seq + seq % 10)).await;
        }
        let shown = self.all("memory_versions?limit=100").await;
        for version in shown.iter().step_by(5) {
            let at = version["created_at"].as_str().unwrap();
            let by_then = |other: &&Value| micros(&other["created_at"]) <= micros(&version["created_at"]);
            let last = &shown.iter().find(by_then).unwrap()["id"];
            let last = self.version_ids.iter().position(|id| id == last.as_str().unwrap()).unwrap();
            self.check_list(last + 1, &format!("at={at}&limit=100")).await;
        }
        let beyond = self.clients[0].get(&format!("{}/memories?at_seq={}", self.store, newest + 1)).await;
        assert_eq!(beyond.status, 400, "{}", beyond.text);
    }

    async fn check_list(&self, seq: usize, query: &str) {
        let told = format!("{query} of {:?}", self.model.versions);
        let shown = self.all(&format!("memories?view=full&{query}")).await;
        let shown = shown.iter().map(|it| {
            let is_redacted = it["redacted_at"].is_string();
            json!([it["path"], it["id"], it["memory_version_id"], it["content"], is_redacted])
        });
        let expected = state(self, seq).into_iter().map(|(memory, (number, version))| {
            let path = version.path.as_deref().unwrap_or_default();
            let (memory_id, version_id) = (&self.memory_ids[memory], &self.version_ids[number]);
            json!([path, memory_id, version_id, version.text(), version.is_redacted])
        });
        let mut expected: Vec<_> = expected.collect();
        // Memories without a path are the last ones.
        expected.sort_by_key(|it| (it[0] == "", it[0].to_string(), it[1].to_string()));
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{told}");
    }

    async fn check_children(&self, seq: usize) {
        let directory = if seq.is_multiple_of(2) { "/" } else { "/a/" };
        let query = format!("memories?depth=1&path_prefix={directory}&at_seq={seq}&limit={}", 1 + seq % 4);
        let shown = self.all(&query).await;
        let shown: Vec<_> = shown.iter().map(|it| it["path"].as_str().unwrap()).collect();
        let state = state(self, seq);
        let below = state.values().filter_map(|(_, it)| it.path.as_deref()?.strip_prefix(directory));
        let children = below.map(|rest| match rest.split_once('/') {
            Some((name, _)) => format!("{directory}{name}/"),
            None => format!("{directory}{rest}"),
        });
        let mut expected: Vec<_> = children.collect::<BTreeSet<_>>().into_iter().collect();
        let redacted = state.values().filter(|(_, version)| version.path.is_none() && directory == "/");
        expected.extend(redacted.map(|_| String::new()));
        assert_eq!(shown, expected, "{query} of {:?}", self.model.versions);
    }

    async fn check_memory(&self, seq: usize) {
        let Some(memory) = seq.checked_rem(self.memory_ids.len()) else { return };
        let told = format!("memory {memory} at {seq} of {:?}", self.model.versions);
        let path = format!("{}/memories/{}?at_seq={seq}", self.store, self.memory_ids[memory]);
        let shown = self.clients[0].get(&path).await;
        let state = state(self, seq);
        let Some((number, version)) = state.get(&memory) else {
            assert_eq!(shown.status, 404, "{told}: {}", shown.text);
            return;
        };
        let shown = shown.json();
        let shown = json!([shown["memory_version_id"], shown["content"], shown["path"]]);
        let path = version.path.as_deref().unwrap_or_default();
        assert_eq!(shown, json!([self.version_ids[*number], version.text(), path]), "{told}");
        if version.path.is_some() {
            let found = self.all(&format!("memories?path={path}&at_seq={seq}")).await;
            assert_eq!(found.len(), 1, "{told}");
            assert_eq!(found[0]["memory_version_id"], self.version_ids[*number], "{told}");
        }
    }

    async fn check_differences(&self, from: usize, to: usize) {
        let told = format!("from {from} to {to} of {:?}", self.model.versions);
        let query = format!("diff?from_seq={from}&to_seq={to}&limit={}", 1 + from % 5);
        let shown = self.all(&query).await;
        let paths: Vec<_> = shown.iter().map(|it| it["path"].as_str().unwrap_or("0")).collect();
        assert!(paths.is_sorted(), "{told}: {paths:?}");
        let mut found: Vec<_> = shown.iter().map(difference).collect();
        let mut expected = self.differences(from, to);
        found.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        assert_eq!(found, expected, "{told}");
    }

    fn differences(&self, from: usize, to: usize) -> Vec<Value> {
        let [mut before, mut after] = [from, to].map(|seq| state(self, seq));
        let unchanged = |memory: &usize, (number, _): &(usize, &Version)| {
            after.get(memory).is_some_and(|(other, _)| other == number)
        };
        let same: Vec<_> = before.keys().copied().filter(|it| unchanged(it, &before[it])).collect();
        for memory in same {
            before.remove(&memory);
            after.remove(&memory);
        }
        let (mut pairs, mut added) = (Vec::new(), Vec::new());
        for (memory, (_, version)) in after {
            match before.remove(&memory) {
                Some((_, earlier)) => pairs.push((Some(earlier), Some(version))),
                None => added.push(version),
            }
        }
        for version in added {
            // Another memory that was removed from the same path.
            let is_at_path = |it: &Version| version.path.is_some() && it.path == version.path;
            let replaced = before.keys().copied().find(|memory| is_at_path(before[memory].1));
            let earlier = replaced.and_then(|memory| before.remove(&memory)).map(|(_, version)| version);
            pairs.push((earlier, Some(version)));
        }
        pairs.extend(before.into_values().map(|(_, version)| (Some(version), None)));
        let is_same = |one: &Version, other: &Version| {
            one.path.is_some() && one.path == other.path && one.text() == other.text()
        };
        pairs.retain(|(one, other)| !one.zip(*other).is_some_and(|(one, other)| is_same(one, other)));
        let shown = pairs.into_iter().map(|(one, other)| {
            let path = |version: Option<&Version>| version.and_then(|version| version.path.clone());
            let hash = |it: Option<&Version>| it.and_then(Version::text).map(|content| sha256(content));
            let id = |version: Option<&Version>| version.map(|version| &self.memory_ids[version.memory]);
            let is_renamed = path(one).is_some() && path(other).is_some() && path(one) != path(other);
            let change = match (one, other) {
                (None, _) => "added",
                (_, None) => "removed",
                _ if is_renamed => "renamed",
                _ => "changed",
            };
            let previous = path(one).filter(|_| is_renamed);
            let lines = |version: Option<&Version>| match version {
                None => Some(0),
                Some(version) => version.text().map(|content| content.lines().count()),
            };
            let change_of = |(one, other): (usize, usize)| other.cast_signed() - one.cast_signed();
            let lines = lines(one).zip(lines(other)).map(change_of);
            let shown = other.or(one).and_then(|version| version.path.clone());
            json!([change, shown, previous, id(one), hash(one), id(other), hash(other), lines])
        });
        shown.collect()
    }
}

/// A shown difference in the form of the expected ones, and checks its numbers of lines.
fn difference(shown: &Value) -> Value {
    let lines = shown["added_lines"].as_i64().zip(shown["removed_lines"].as_i64());
    if let Some((added, removed)) = lines {
        let is_same = shown["from_content_sha256"] == shown["to_content_sha256"];
        assert!(!is_same || added + removed == 0, "{shown}");
    }
    let lines = lines.map(|(added, removed)| added - removed);
    let fields =
        "change path previous_path from_memory_id from_content_sha256 to_memory_id to_content_sha256";
    fields.split(' ').map(|field| shown[field].clone()).chain([json!(lines)]).collect()
}
