//! Undo, and stores that go back to a point. Random histories are compared with a model.

use keepsake_testkit::{Seed, cases_times};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;

use crate::prelude::*;

/// Few names, so that memories are in each other's way; one is a file here and a directory there.
const PATHS: [&str; 7] = ["/a", "/b", "/c", "/a/x", "/a/y", "/b/x", "/c/x/z"];
/// Rounds before a change lands; `./tests/nightly` tries more.
const ROUNDS: usize = 6;
const STEPS: usize = 14;
/// The author that is a session; the others are API keys.
const SESSION: usize = 3;

/// Path and content of a memory by its id.
type Tree = BTreeMap<String, (String, String)>;

/// The state that comes back of each memory with selected changes; `Err`: it was changed later, to another state.
type Wanted = BTreeMap<String, Result<Option<(String, String)>, ()>>;

/// A version: who made it, and the memory after it.
#[derive(Debug, Clone)]
struct Change {
    seq: usize,
    by: usize,
    after: Option<(String, String)>,
}

/// The changes of each memory, oldest first.
#[derive(Debug, Default)]
struct Model {
    memories: BTreeMap<String, Vec<Change>>,
    seq: usize,
}

impl Model {
    fn add(&mut self, id: &str, by: usize, after: Option<(String, String)>) {
        self.seq += 1;
        let change = Change { seq: self.seq, by, after };
        self.memories.entry(id.to_owned()).or_default().push(change);
    }

    fn tree(&self) -> Tree {
        self.tree_at(self.seq)
    }

    fn tree_at(&self, seq: usize) -> Tree {
        let then = |changes: &[Change]| changes.iter().rfind(|change| change.seq <= seq)?.after.clone();
        self.memories.iter().filter_map(|(id, changes)| Some((id.clone(), then(changes)?))).collect()
    }

    fn selected(&self, is_selected: impl Fn(&Change, Option<&Change>) -> bool, overwrite: bool) -> Wanted {
        let mut found = BTreeMap::new();
        for (id, changes) in &self.memories {
            let before = |place: usize| place.checked_sub(1).map(|it| &changes[it]);
            let selected = |place: usize| is_selected(&changes[place], before(place));
            let Some(mut first) = (0..changes.len()).rfind(|place| selected(*place)) else { continue };
            let is_changed_later = first + 1 < changes.len() && !overwrite;
            while first > 0 && selected(first - 1) {
                first -= 1;
            }
            let then = before(first).and_then(|before| before.after.clone());
            let is_as_before = changes.last().is_some_and(|last| last.after == then);
            found.insert(id.clone(), if is_changed_later && !is_as_before { Err(()) } else { Ok(then) });
        }
        found
    }
}

pub(crate) async fn tree_of(store: &Store) -> Tree {
    let listed = store.client.all(&format!("{}?limit=100&view=full", store.memories())).await;
    let entry = |memory: &Value| {
        let state = (text(&memory["path"]).to_owned(), text(&memory["content"]).to_owned());
        (text(&memory["id"]).to_owned(), state)
    };
    listed.iter().map(entry).collect()
}

fn excludes(one: &str, other: &str) -> bool {
    one == other || one.starts_with(&format!("{other}/")) || other.starts_with(&format!("{one}/"))
}

/// One author makes one random change, if nothing is in its way.
async fn step(store: &Store, model: &mut Model, by: usize, mut dice: impl FnMut(usize) -> usize) {
    let tree = model.tree();
    let path = PATHS[dice(PATHS.len())];
    let content = format!("{}\n", dice(4));
    let ids: Vec<_> = tree.keys().cloned().collect();
    let kind = if ids.is_empty() { 0 } else { dice(10) };
    if kind < 3 {
        let made = store.try_create(path, &content).await;
        if made.status == 200 {
            model.add(text(&made.json()["id"]), by, Some((path.to_owned(), content)));
        }
        return;
    }
    let id = &ids[dice(ids.len())];
    let memory = json!({"id": id});
    let (old_path, old_content) = &tree[id];
    match kind {
        3 => {
            store.delete(&memory).await;
            model.add(id, by, None);
        }
        4 | 5 if old_path != path => {
            let renamed = store.try_update(&memory, &json!({"path": path})).await;
            let then = Some((path.to_owned(), old_content.clone()));
            if renamed.status == 200 {
                model.add(id, by, then);
            }
        }
        6 | 7 => {
            let to = (kind == 6).then_some(path);
            move_or_delete_all(store, model, by, (&old_path[..2], to)).await;
        }
        _ if *old_content != content => {
            store.update(&memory, &json!({"content": content})).await;
            model.add(id, by, Some((old_path.clone(), content)));
        }
        _ => {}
    }
}

/// Moves or deletes a file, or a directory with its files, by the tool, if nothing is in its way.
async fn move_or_delete_all(store: &Store, model: &mut Model, by: usize, (from, to): (&str, Option<&str>)) {
    let named = |path: &str| format!("/memories{path}");
    let input = match to {
        Some(to) => json!({"command": "rename", "old_path": named(from), "new_path": named(to)}),
        None => json!({"command": "delete", "path": named(from)}),
    };
    let called = store.client.call(&store.id, &input).await;
    assert_eq!(called.status, 200, "{input}: {}", called.text);
    if called.tool_result().is_error {
        return;
    }
    let changed = model.tree().into_iter().filter_map(|(id, (path, content))| {
        let below = path.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let after = to.map(|to| (format!("{to}{below}"), content));
        Some((path, id, after))
    });
    // The versions of a commit are in the order of the paths.
    let mut changed: Vec<_> = changed.collect();
    changed.sort();
    for (_, id, after) in changed {
        model.add(&id, by, after);
    }
}

/// Checks the answer to an undo, and that the store is as it says; returns the changes made.
fn check(model: &mut Model, wanted: &Wanted, answer: &Value, by: usize) {
    let before = model.tree();
    let items = answer["data"].as_array().unwrap();
    let of = |id: &str| items.iter().find(|item| item["memory_id"] == id);
    let listed_as = |id: &str| of(id).unwrap_or_else(|| panic!("{id} is not listed: {answer}"));
    let skipped = |item: &Value, reason: &str| item["action"] == "skipped" && item["reason"] == reason;
    let mut listed = 0;
    let (mut blocked, mut made) = (Vec::new(), Vec::new());
    for (id, then) in wanted {
        let now = before.get(id);
        let Ok(then) = then else {
            let item = listed_as(id);
            assert!(skipped(item, "changed_later"), "{item}");
            assert_eq!(item["changed_by"]["memory_version_id"], item["from_version_id"], "{item}");
            listed += 1;
            continue;
        };
        if then.as_ref() == now {
            assert!(of(id).is_none(), "{id} is as before: {answer}");
            continue;
        }
        let item = listed_as(id);
        listed += 1;
        if skipped(item, "path_taken") {
            blocked.push((id.clone(), then.clone().unwrap().0));
            continue;
        }
        let action = match (now, then) {
            (_, None) => "deleted",
            (None, Some(_)) => "recreated",
            (Some(now), Some(then)) if now.1 == then.1 => "renamed",
            _ => "restored",
        };
        assert_eq!(item["action"], action, "{item}");
        assert_eq!(item["path"], then.as_ref().or(now).unwrap().0.as_str(), "{item}");
        made.push((text(&item["memory_id"]).to_owned(), then.clone()));
    }
    assert_eq!(items.len(), listed, "{answer}");
    for (id, then) in made {
        model.add(&id, by, then);
    }
    let after = model.tree();
    for (id, path) in &blocked {
        let live = after.iter().map(|(other, (at, _))| (other, at));
        let mut others = live.chain(blocked.iter().map(|(other, at)| (other, at)));
        let is_blocked = others.any(|(other, at)| other != id && excludes(at, path));
        assert!(is_blocked, "nothing is in the way of {id} to {path}: {answer}");
    }
}

async fn key_of(client: &Client) -> String {
    text(&ok(&client.get("/v1/credential").await)["actor"]["api_key_id"]).to_owned()
}

async fn undo(store: &Store, body: &Value) -> Value {
    ok(&store.client.post(&format!("{}/undo", store.path), body).await)
}

async fn restore_to(store: &Store, seq: usize) -> Value {
    ok(&store.client.post(&format!("{}/restore", store.path), &json!({"at_seq": seq})).await)
}

pub(super) async fn undo_of_any_changes_equals_a_model(place: Place) {
    let seed = Seed::new();
    let mut runner = seed.runner(Config::default());
    let rounds = ROUNDS * cases_times() as usize;
    let numbers = prop::collection::vec(any::<u32>(), 200 * rounds).new_tree(&mut runner).unwrap().current();
    let mut numbers = numbers.into_iter();
    let mut dice = |sides: usize| numbers.next().unwrap() as usize % sides;
    let store = place.new_store("undone").await;
    let third = place.key(&["memory:read", "memory:write"]).await;
    let mut ids = join_all([&place.client, &place.second, &third].map(key_of)).await;
    let (session, _, holder) = open(&place.client, &[attached(&store, "read_write")]).await;
    ids.push(text(&session["id"]).to_owned());
    let authors = [&place.client, &place.second, &third, &holder];
    let mut model = Model::default();
    for round in 0..rounds {
        let begin = model.seq;
        for _ in 0..STEPS {
            let by = 1 + dice(SESSION);
            step(&store.seen_by(authors[by]), &mut model, by, &mut dice).await;
        }
        let (by, after) = (1 + dice(SESSION), (begin + dice(STEPS)).min(model.seq));
        let (overwrite, below) = (dice(2) == 1, [None, Some("/a/"), Some("/b/")][dice(3)]);
        let author = if by == SESSION { "session_id" } else { "api_key_id" };
        let mut body = json!({author: ids[by], "overwrite": overwrite, "path_prefix": below});
        // The times of the versions, oldest first. A period may replace the sequence number.
        let times = store.history().await.into_iter().rev().map(|version| version["created_at"].clone());
        let times: Vec<_> = times.collect();
        let [from, to] = [0, dice(STEPS)].map(|more| &times[(after + more).min(times.len() - 1)]);
        let is_period = dice(3) == 0;
        if is_period {
            body["created_at"] = json!({"gte": from, "lte": to});
        } else {
            body["after_seq"] = after.into();
        }
        let is_in_period = |seq: usize| (micros(from)..=micros(to)).contains(&micros(&times[seq - 1]));
        let is_then = |seq: usize| if is_period { is_in_period(seq) } else { seq > after };
        let is_below = |change: Option<&Change>| {
            let path = change.and_then(|change| change.after.as_ref()).map(|(path, _)| path.as_str());
            below.is_none_or(|below| path.is_some_and(|path| path.starts_with(below)))
        };
        let is_chosen = |change: &Change, before: Option<&Change>| {
            change.by == by && is_then(change.seq) && (is_below(Some(change)) || is_below(before))
        };
        let wanted = model.selected(is_chosen, overwrite);
        let mut dry = body.clone();
        dry["dry_run"] = true.into();
        let planned = undo(&store, &dry).await;
        assert_eq!(tree_of(&store).await, model.tree());
        let (before, seq) = (model.tree(), model.seq);
        let done = undo(&store, &body).await;
        assert_eq!(done["data"], planned["data"], "round {round}: {body}");
        check(&mut model, &wanted, &done, 0);
        assert_eq!(tree_of(&store).await, model.tree(), "round {round}: {body} {done}");
        assert_eq!(store.version_count().await, model.seq);
        // An undo is undone like any change.
        let again = undo(&store, &json!({"api_key_id": ids[0], "after_seq": seq})).await;
        let wanted = model.selected(|change, _| change.by == 0 && change.seq > seq, false);
        check(&mut model, &wanted, &again, 0);
        assert_eq!(model.tree(), before, "round {round}: {again}");
        assert_eq!(tree_of(&store).await, before);
        // The model does not know the order of the changes in the commit of an undo.
        let at = (begin.max(2) + dice(STEPS)).min(seq);
        let restored = restore_to(&store, at).await;
        let wanted = model.selected(|change, _| change.seq > at, false);
        let expected = model.tree_at(at);
        check(&mut model, &wanted, &restored, 0);
        assert_eq!(tree_of(&store).await, expected, "round {round}: {restored}");
        let differences = store.client.all(&format!("{}/diff?from_seq={at}", store.path)).await;
        assert_eq!(differences, [] as [Value; 0], "round {round}: since {at}");
    }
}

/// A directory and a file, and two memories, one with a name that literals of Postgres quote, change places
/// in one commit.
pub(super) async fn paths_are_swapped_in_one_commit(place: Place) {
    let (store, quoted) = (place.new_store("swapped").await, r#"/{a}, "b" \ (c)"#);
    let [one, two] = [store.create(quoted, "1").await, store.create("/two", "2").await];
    let file = store.create("/place", "file").await;
    let mut below = Vec::new();
    for n in 0..3 {
        below.push(store.create(&format!("/dir/{n}"), "below").await);
    }
    let (before, begin) = (tree_of(&store).await, store.version_count().await);
    for (memory, path) in [(&one, "/x"), (&two, quoted), (&one, "/two"), (&file, "/y")] {
        store.update(memory, &json!({"path": path})).await;
    }
    for (n, memory) in below.iter().enumerate() {
        store.update(memory, &json!({"path": format!("/place/{n}")})).await;
    }
    store.update(&file, &json!({"path": "/dir"})).await;
    let swapped = tree_of(&store).await;
    let done = undo(&store, &json!({"after_seq": begin})).await;
    shows(&done["counts"], &json!({"renamed": 6, "skipped": 0}));
    assert_eq!(tree_of(&store).await, before);
    assert_eq!(store.paths().await, ["/dir/0", "/dir/1", "/dir/2", "/place", "/two", quoted]);
    let times = strings(&store.history().await[..6], "created_at");
    assert!(times.iter().all(|time| *time == times[0]), "one commit: {times:?}");
    let first = &store.history().await[0];
    let undone = ok(&store.client.get(&store.version(&first["undoes"])).await);
    assert_eq!(undone["memory_id"], first["memory_id"]);
    restore_to(&store, begin + 8).await;
    assert_eq!(tree_of(&store).await, swapped);
}

pub(super) async fn undo_asks_for_scopes_and_filters_and_is_made_once(place: Place) {
    let store = place.new_store("guarded").await;
    let path = format!("{}/undo", store.path);
    let memory = store.create("/a", "one").await;
    store.seen_by(&place.second).update(&memory, &json!({"content": "two"})).await;
    let own = place.key(&["memory:read", "memory:write"]).await;
    let (own_key, second_key) = (key_of(&own).await, key_of(&place.second).await);
    let restore = format!("{}/restore", store.path);
    for (path, body, named) in [
        (&path, json!({}), "`session_id`"),
        (&path, json!({"overwrite": true}), "`session_id`"),
        (&path, json!({"api_key_id": own_key, "user_id": "ada"}), "`user_id`"),
        (&path, json!({"session_id": "sesn_1"}), "`session_id` is not a whole id"),
        (&path, json!({"created_at": {"gte": "soon"}}), "`created_at.gte` must be a date or a time"),
        (&path, json!({"path_prefix": "/a"}), "`path_prefix`"),
        (&path, json!({"after_seq": 99}), "`after_seq` must be at most "),
        (&restore, json!({}), "`at`"),
        (&restore, json!({"at": "2026-01-01T00:00:00Z", "at_seq": 1}), "`at`"),
    ] {
        invalid(&store.client.post(path, &body).await, named);
    }
    // Without `stores:admin`, only what the caller changed.
    for (path, body) in [
        (&path, json!({"api_key_id": second_key})),
        (&path, json!({"after_seq": 0})),
        (&path, json!({"api_key_id": own_key, "overwrite": true})),
        (&restore, json!({"at_seq": 0})),
    ] {
        refused(&own.post(path, &body).await, 403, "permission_error");
    }
    let denied = own.post(&path, &json!({"after_seq": 0})).await.text;
    assert!(denied.contains(&format!("send `api_key_id` with `{own_key}`, and no `overwrite`")), "{denied}");
    ok(&own.post(&path, &json!({"api_key_id": own_key})).await);
    for client in [&place.reader, &place.writer, &place.admin] {
        refused(&client.post(&path, &json!({"api_key_id": own_key})).await, 403, "permission_error");
    }
    let skipped = undo(&store, &json!({"api_key_id": key_of(&place.client).await})).await;
    let changed_by = &skipped["data"][0]["changed_by"]["created_by"];
    assert_eq!(changed_by["api_key_id"], second_key.as_str(), "{skipped}");
    let body = json!({"api_key_id": second_key});
    let made = ok(&post_with(&store.client, &path, &body, ("idempotency-key", "k")).await);
    shows(&made["data"][0], &json!({"action": "restored", "to_version_id": memory["memory_version_id"]}));
    let count = store.version_count().await;
    assert_eq!(ok(&post_with(&store.client, &path, &body, ("idempotency-key", "k")).await), made);
    assert_eq!(store.version_count().await, count);
    // A redacted content does not come back.
    let head = store.basic(&memory).await;
    let three = store.update(&memory, &json!({"content": "three"})).await;
    store.redact(&memory["memory_version_id"]).await;
    store.redact(&head["memory_version_id"]).await;
    let gone = undo(&store, &json!({"after_seq": count})).await;
    shows(&gone["data"][0], &json!({"action": "skipped", "reason": "content_gone", "to_version_id": null}));
    // Redacted versions, whose paths are unknown, are taken back with those around them.
    let mut redacted = Vec::new();
    for content in ["four", "five", "six"] {
        redacted.push(store.update(&memory, &json!({"content": content})).await);
    }
    for version in &redacted[..2] {
        store.redact(&version["memory_version_id"]).await;
    }
    let back = undo(&store, &json!({"after_seq": count + 1, "path_prefix": "/"})).await;
    shows(&back["data"][0], &json!({"action": "restored", "to_version_id": three["memory_version_id"]}));
    let count = store.version_count().await;
    store.delete(&memory).await;
    store.redact(&store.history().await[0]["id"]).await;
    let back = undo(&store, &json!({"after_seq": count, "path_prefix": "/"})).await;
    shows(&back["data"][0], &json!({"action": "recreated", "path": "/a"}));
    store.archive().await;
    invalid(&store.client.post(&path, &json!({"after_seq": 0})).await, "archived");
}

/// More than 500 memories are several commits, and their paths may depend on each other.
pub(super) async fn large_undo_is_made_in_parts(place: Place) {
    let store = place.new_store("large").await;
    let batch = format!("{}/batch?memories=false", store.memories());
    let mut created = Vec::new();
    for part in 0..3 {
        let create = |n| json!({"type": "create", "path": format!("/old/{part}/{n}"), "content": "x"});
        let operations: Vec<_> = (0..250).map(create).collect();
        let made = ok(&store.client.post(&batch, &json!({"operations": operations})).await);
        created.extend(made["data"].as_array().unwrap().clone());
    }
    let [one, two] = [store.create("/one", "1").await, store.create("/two", "2").await];
    let tests = store.create("/.keepsake/tests.yaml", "gate: true\ntests:\n- max_files: 5000\n").await;
    let freed = store.create("/freed", "3").await;
    let (before, begin) = (tree_of(&store).await, store.version_count().await);
    // The tests are in the way of a memory, which no gate may keep from its path.
    for (memory, path) in
        [(&one, "/x"), (&two, "/one"), (&one, "/two"), (&freed, "/moved"), (&tests, "/freed")]
    {
        store.update(memory, &json!({"path": path})).await;
    }
    for part in created.chunks(250) {
        let operations = part.iter().enumerate().map(|(n, memory)| {
            let id = text(&memory["memory_id"]);
            json!({"type": "update", "memory_id": id, "path": format!("/new/{n}/{id}")})
        });
        let operations: Vec<_> = operations.collect();
        ok(&store.client.post(&batch, &json!({"operations": operations})).await);
    }
    // A file is where a directory comes back.
    let in_the_way = store.create("/old", "file").await;
    let moved = undo(&store, &json!({"after_seq": begin, "dry_run": true})).await;
    shows(&moved, &json!({"left": 755, "not_shown": 255}));
    let mut done = undo(&store, &json!({"after_seq": begin})).await;
    assert!(text(&done["id"]).starts_with("memundo_"), "{done}");
    let progress = format!("{}/undo/{}", store.path, text(&done["id"]));
    while done["status"] == "in_progress" {
        tokio::task::yield_now().await;
        done = ok(&store.client.get(&progress).await);
    }
    shows(&done, &json!({"status": "done", "left": 0, "not_shown": 255}));
    shows(&done["counts"], &json!({"renamed": 754, "deleted": 1, "skipped": 0}));
    assert_eq!(tree_of(&store).await, before);
    not_found(&delete(&store.client, &store.memory(&in_the_way)).await);
    // What has ended stays as it is.
    let other = place.key(&["memory:read", "memory:write"]).await;
    refused(&delete(&other, &progress).await, 403, "permission_error");
    shows(&ok(&delete(&store.client, &progress).await), &json!({"status": "done", "left": 0}));
    let elsewhere = place.new_store("elsewhere").await;
    not_found(&store.client.get(&progress.replace(&store.id, &elsewhere.id)).await);
}

pub(super) async fn fork_gets_the_memories_of_a_point(place: Place) {
    let store = place.new_store("source").await;
    for n in 0..120 {
        store.create(&format!("/{n}"), &format!("content {n}")).await;
    }
    let texts = async |store: &Store| {
        let mut texts: Vec<_> = tree_of(store).await.into_values().collect();
        texts.sort();
        texts
    };
    let expected = texts(&store).await;
    assert_eq!(store.upsert("/0", "later").await.status, 200);
    store.create("/later", "x").await;
    let new = json!({"name": "fork", "fork_of": {"memory_store_id": store.id, "at_seq": 120}});
    for client in [&place.reader, &place.admin, &place.bound] {
        refused(&client.post(STORES, &new).await, 403, "permission_error");
    }
    let mut ahead = new.clone();
    ahead["fork_of"]["at_seq"] = 500.into();
    invalid(&place.client.post(STORES, &ahead).await, "`fork_of.at_seq`");
    ok(&patch(&place.client, &store.path, &json!({"search_mode": "lexical"})).await);
    let copied = async |new: &Value| {
        let mut object = ok(&place.client.post(STORES, new).await);
        let fork = Store::new(&place.client, text(&object["id"]));
        while object["forked_from"]["status"] == "copying" {
            tokio::task::yield_now().await;
            object = fork.object().await;
        }
        (fork, object)
    };
    let mut named = new.clone();
    named["search_mode"] = "hybrid".into();
    assert_eq!(copied(&named).await.1["search_mode"], "hybrid");
    let (fork, object) = copied(&new).await;
    assert_eq!(object["search_mode"], "lexical");
    let without = ok(&patch(&place.client, &fork.path, &json!({"search_mode": null})).await);
    assert_eq!(without["search_mode"], Value::Null);
    let origin = &object["forked_from"];
    assert_eq!(*origin, json!({"memory_store_id": store.id, "seq": 120, "status": "done", "skipped": 0}));
    assert_eq!(texts(&fork).await, expected);
    assert!(store.object().await["forked_from"].is_null());
    // A key that may not see the source does not see its id either.
    let scopes = ["memory:read", "memory:write", "stores:admin"];
    let of_fork = json!({"name": "of the fork", "scopes": scopes, "memory_store_ids": [fork.id]});
    let key = ok(&place.client.post("/v1/api_keys", &of_fork).await);
    let bound = place.client.with_key(text(&key["api_key"]));
    let mut seen = bound.all(&format!("{STORES}?limit=9")).await;
    seen.push(ok(&bound.get(&fork.path).await));
    seen.push(ok(&patch(&bound, &fork.path, &json!({"name": "its own"})).await));
    for object in seen {
        assert!(object["forked_from"].is_null(), "{object}");
    }
    // No request made these versions. The list of readers comes after a flush of the counts.
    ok(&place.client.get(&format!("{}/readers", fork.path)).await);
    let daily = format!("/v1/usage/daily?memory_store_id={}", fork.id);
    shows(&ok(&place.client.get(&daily).await), &json!({"writes": 0}));
    // The stores share no content.
    let erased = ok(&place.client.post("/v1/erasures", &json!({"memory_store_id": store.id})).await);
    place.client.receipt(&erased).await;
    not_found(&place.client.get(&store.path).await);
    assert_eq!(texts(&fork).await, expected);
}
