//! A commit as a document, which both databases read: JSON on SQLite, the same fields as a row
//! literal on Postgres. Beside it are the bytes of new contents and search terms.
//!
//! Ids and hashes are hexadecimal. A value that is absent is left out, which makes the document
//! quicker to write and to read.

use keepsake_core::content::first_line;
use keepsake_core::{Actor, DirPath, SensitiveDataPolicy};
use serde_json::{Value, json};

use super::{Commit, CommitChange, CommitPlan, DirectoryDelta, KeptMemory, Origin};
use crate::numbers::{hex, hex_of};

impl Commit {
    /// The document; its changes say where in [`Self::contents`] their parts are.
    pub(crate) fn document(&self, plan: &CommitPlan) -> Value {
        let mut end = 0;
        let change = |change| change_of(change, self.parts_of(change), &mut end);
        let changes: Vec<_> = self.changes.iter().filter_map(change).collect();
        let (call, guard, actor) = (&self.idempotency, &self.guard, &self.actor);
        let path_guard = self.path_guard.as_ref();
        let directories = plan.directories.iter();
        present(json!({
            "now": self.now.as_micros(),
            "actor_type": actor.as_ref().map(Actor::kind),
            "actor_id": actor.as_ref().map(Actor::id),
            "replica": hex(self.replica),
            "memory_limit": self.memory_limit.min(i64::MAX as u64),
            "byte_limit": self.byte_limit.min(i64::MAX as u64),
            // The idempotency key, the hash of the request, and the time through which
            // records are expired.
            "scope": call.map(|call| hex_of(&call.scope_sha256)),
            "request": call.map(|call| hex_of(&call.request_sha256)),
            "since": call.map(|call| call.since.as_micros()),
            "results": self.results,
            "guard_directory": guard.as_ref().map(|guard| guard.directory.as_str()),
            "guard_files": guard.as_ref().map(|guard| guard.files),
            "guard_path": path_guard.map(|guard| guard.path.as_str()),
            // Absent: no memory is at the path.
            "guard_version": path_guard.and_then(|guard| guard.version_id).map(|version_id| hex(version_id.uuid())),
            "purge_epoch": self.purge_epoch,
            "seq": self.seq,
            "policy": self.policy.map(SensitiveDataPolicy::name),
            // Whether the commit does more than delete memories.
            "adds": self.adds(),
            "count_delta": plan.count_delta,
            "byte_delta": plan.byte_delta,
            "version_bytes": plan.version_bytes,
            "directories_may_go": plan.directories_may_go,
            "taken": plan.taken_paths,
            "ancestors": plan.ancestor_files,
            // Absent, unless a change takes a path that another one leaves.
            "makes_room": some(plan.makes_room.iter().map(|id| Value::from(hex(id.uuid()))).collect()),
            "replaced": some(plan.replaced_directories.iter().map(replaced_of).collect()),
            // In the order of the paths.
            "directories": directories.map(|(path, delta)| directory_of(path, delta)).collect::<Vec<_>>(),
            // Absent, unless a change leaves the counts of directories as they are.
            "touched": some(plan.touched_directories.iter().map(|path| Value::from(path.as_str())).collect()),
            "changes": changes,
            "kept": self.kept.iter().map(kept_of).collect::<Vec<_>>(),
        }))
    }

    /// The new contents that the index stores, and the search terms, one after the other.
    pub(crate) fn contents(&self) -> Vec<u8> {
        self.parts().collect::<Vec<_>>().concat()
    }
}

/// Leaves out the fields that are null.
fn present(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// `None`: there are none.
fn some(values: Vec<Value>) -> Option<Vec<Value>> {
    (!values.is_empty()).then_some(values)
}

fn replaced_of((directory, files): &(DirPath, u64)) -> Value {
    json!({ "path": directory.as_str(), "files": files })
}

/// `end`: where the parts of the previous changes end, and afterwards those of this change.
fn change_of(change: &CommitChange, parts: [Option<&[u8]>; 2], end: &mut usize) -> Option<Value> {
    let path = change.path()?;
    let (wanted, terms) = (&change.wanted, change.search.as_ref());
    let stored = change.after().map(|(_, content)| content);
    // The first byte is number 1.
    let [content, terms_at] = parts.map(|part| {
        let (from, count) = (*end + 1, part?.len());
        *end += count;
        Some((from, count))
    });
    Some(present(json!({
        "op": change.operation().name(),
        "memory": hex(change.memory_id.uuid()),
        // The version that was read, which deleted the memory if the change revives it.
        "expect": change.expected_version().map(|version_id| hex(version_id.uuid())),
        "revives": matches!(wanted.from, Origin::Deleted(..)),
        "undoes": wanted.undoes.map(|version_id| hex(version_id.uuid())),
        // Whether the memory is live before and after the change, at the same path.
        "stays": wanted.head().is_some_and(|before| wanted.path.as_ref() == Some(&before.path)),
        "version": hex(change.version_id.uuid()),
        "path": path.as_str(),
        "parent": path.parent().as_str(),
        "name": path.name(),
        "blob": stored.map(|stored| hex(stored.blob_id.uuid())),
        "size": stored.map(|stored| stored.size_bytes),
        "sha256": stored.map(|stored| stored.sha256.to_string()),
        "first_line": wanted.content.text().map(first_line),
        "pinned": wanted.expiry.is_pinned,
        // 0: the expiry time is removed.
        "expires": wanted.expiry.stored_time(),
        "content_from": content.map(|(from, _)| from),
        "content_for": content.map(|(_, count)| count),
        "analyser": terms.map(|row| row.analyser),
        "length": terms.map(|row| row.length),
        "terms_from": terms_at.map(|(from, _)| from),
        "terms_for": terms_at.map(|(_, count)| count),
    })))
}

/// A memory that gets no version, with the names of a change.
fn kept_of(kept: &KeptMemory) -> Value {
    present(json!({
        "memory": hex(kept.memory_id.uuid()),
        "expect": hex(kept.expected.uuid()),
        "revives": false,
        "pinned": kept.expiry.is_pinned,
        "expires": kept.expiry.stored_time(),
    }))
}

/// How the counters of a directory change.
pub(crate) fn directory_of(path: &DirPath, delta: &DirectoryDelta) -> Value {
    json!({
        "path": path.as_str(),
        "parent": path.parent().unwrap_or_else(DirPath::root).as_str(),
        "name": path.name(),
        "files": delta.files,
        "bytes": delta.size_bytes,
        "children": delta.visible_children,
    })
}
