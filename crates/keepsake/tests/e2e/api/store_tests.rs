//! The tests of a store: their results, the gate for changes of many memories, and who may write them.

use super::batches::create;
use super::imports::{export, import};
use crate::prelude::*;

const FILE: &str = "/.keepsake/tests.yaml";
const TESTS: &str = "gate: true
tests:
- search: refund limit
  finds: /policy/refunds.md
  within: 2
- path: /policy/refunds.md
  contains: 200 EUR
- unchanged: /pinned/
- max_files: 8
";
const LIMIT: &str = "The refund limit is 200 EUR.\n";

/// Makes the store of [`TESTS`], with four memories besides the tests.
async fn fill(store: &Store, tests: &str) -> Value {
    let refunds = store.create("/policy/refunds.md", LIMIT).await;
    store.create("/policy/shipping.md", "We ship on Tuesdays.\n").await;
    store.create("/pinned/team.md", "Nora leads the team.\n").await;
    store.create("/notes/a.md", "A limit of time.\n").await;
    store.create(FILE, tests).await;
    refunds
}

async fn test(store: &Store, body: &Value) -> Answer {
    store.client.post(&format!("{}/test", store.path), body).await
}

async fn batch(store: &Store, operations: Value) -> Answer {
    store.batch(&json!({"atomic": false, "operations": operations})).await
}

#[track_caller]
fn gated(answer: &Answer) -> Value {
    refused(answer, 409, "memory_store_test_error")
}

fn broken(results: &Value) -> Vec<u64> {
    let broken = results.as_array().unwrap().iter().filter(|result| result["passed"] == false);
    broken.map(|result| result["line"].as_u64().unwrap()).collect()
}

pub(super) async fn tests_are_made_on_the_memories_as_they_are(place: Place) {
    let store = place.store();
    refused_for(&test(&store, &json!({})).await, 404, "not_found_error", FILE);
    let refunds = fill(&store, TESTS).await;
    let used = store.basic(&refunds).await["last_accessed_at"].clone();
    let report = ok(&send(place.client.request(Method::POST, &format!("{}/test", store.path))).await);
    shows(&report, &json!({"type": "memory_store_test", "passed": true, "gate": true}));
    let limit = json!({"search": "refund limit", "finds": "/policy/refunds.md", "within": 2});
    let first = &report["data"][0];
    shows(first, &json!({"line": 3, "test": limit}));
    let hits = strings(first["hits"].as_array().unwrap(), "path");
    assert_eq!(hits, ["/policy/refunds.md", "/notes/a.md"]);
    assert_eq!(store.basic(&refunds).await["last_accessed_at"], used);

    let others = "tests:\n- search: refund\n  finds: /notes/a.md\n- search: zebra\n  finds: /none\n\
        - path: /policy/refunds.md\n  contains: 300 EUR\n- path: /none\n  contains: a\n- unchanged: /\n- max_files: 3\n";
    let report = ok(&test(&store, &json!({"tests": others})).await);
    shows(&report, &json!({"passed": false, "gate": false}));
    assert_eq!(broken(&report["data"]), [2, 4, 6, 8, 11]);
    let messages = strings(&report["data"].as_array().unwrap()[..4], "message");
    let expected = [
        "it is not among the first 50 hits, the first hits are `/policy/refunds.md`",
        "there is no such memory, and the search has no hits",
        "the memory does not have the text",
        "there is no such memory",
    ];
    assert_eq!(messages, expected);
    assert_eq!(report["data"][5]["message"], "the memory store has 4 memories");
    invalid(&test(&store, &json!({"tests": "tests:\n- findz: /a\n"})).await, "`tests` line 2: `findz`");
}

pub(super) async fn gate_refuses_a_change_of_many_memories_as_a_whole(place: Place) {
    let store = place.store();
    let refunds = fill(&store, TESTS).await;
    let pinned = store.client.all(&format!("{}?path=/pinned/team.md", store.memories())).await;
    let versions = store.version_count().await;
    let id = &refunds["id"];
    let many = |content: &str| (0..5).map(|n| create(&format!("/more/{n}.md"), content)).collect::<Vec<_>>();
    let better: Vec<_> = (0..3).map(|n| create(&format!("/refund-limit/{n}.md"), "refund limit")).collect();
    for (operations, lines) in [
        (json!([{"type": "delete", "memory_id": id}]), &[3, 6][..]),
        (json!([{"type": "update", "memory_id": id, "content": "The refund limit is 300 EUR."}]), &[6]),
        (json!([{"type": "update", "memory_id": id, "path": "/old/refunds.md"}]), &[3, 6]),
        (json!([{"type": "update", "memory_id": pinned[0]["id"], "path": "/team.md"}]), &[8]),
        (json!([create("/pinned/new.md", "x"), create("/fine.md", "x")]), &[8]),
        (json!(many("x")), &[9]),
        (json!(better), &[3]),
    ] {
        let error = gated(&batch(&store, operations.clone()).await);
        assert_eq!(broken(&error["tests"]), *lines, "{operations}: {error}");
        says(text(&error["message"]), &["nothing was changed", &format!("Line {}", lines[0])]);
        assert_eq!(store.version_count().await, versions, "{operations}");
    }
    // So does the plan of an undo or a restoration, with the same tests.
    for (action, plan) in [
        ("undo", json!({"path_prefix": "/policy/"})),
        ("restore", json!({"at_seq": 0, "path_prefix": "/policy/"})),
    ] {
        let path = format!("{}/{action}", store.path);
        let mut dry = plan.clone();
        dry["dry_run"] = true.into();
        let shown = ok(&store.client.post(&path, &dry).await);
        assert_eq!(shown["counts"]["deleted"], 2);
        assert_eq!(broken(&shown["refusal"]["tests"]), [3, 6], "{shown}");
        assert_eq!(gated(&store.client.post(&path, &plan).await)["message"], shown["refusal"]["message"]);
        dry["path_prefix"] = "/notes/".into();
        assert_eq!(ok(&store.client.post(&path, &dry).await)["refusal"], Value::Null);
    }
    let deletion = json!([{"type": "delete", "memory_id": id}]);
    let error = gated(&batch(&store.seen_by(&place.writer), deletion).await);
    assert_eq!(error["tests"], json!([]));
    assert!(!error.to_string().contains("refunds"), "{error}");
    assert!(text(&error["message"]).contains("lines 3, 6"), "{error}");
    // A change that leaves the tests whole is made, whatever else it does; so is a single edit that breaks one.
    let moved = json!([
        {"type": "update", "memory_id": id, "content": "No refund limit over 200 EUR."}, create("/refund.md", "limit"),
        create("/more/1.md", "x"), create("/more/2.md", "x"), create("/more/3.md", "x"),
        {"type": "update", "memory_id": pinned[0]["id"], "pinned": true},
    ]);
    ok(&batch(&store, moved).await);
    store.update(&refunds, &json!({"content": "none"})).await;
    assert_eq!(broken(&ok(&test(&store, &json!({})).await)["data"]), [6]);
    gated(&batch(&store, json!([create("/b.md", "x")])).await);
    let file = store.client.all(&format!("{}?path={FILE}", store.memories())).await;
    store.update(&file[0], &json!({"content": TESTS.replace("gate: true", "gate: false")})).await;
    ok(&batch(&store, json!([create("/b.md", "x")])).await);
}

pub(super) async fn archive_is_tested_as_a_whole(place: Place) {
    let (source, store) = (place.new_store("source").await, place.store());
    // More than one batch; the last one has what the tests ask for.
    let operations: Vec<_> = (0..250).map(|n| create(&format!("/a/{n}.md"), "refund limit")).collect();
    ok(&batch(&source, json!(operations)).await);
    source.create("/z.md", LIMIT).await;
    let archive = export(&source).await;
    let tests = "gate: true\ntests:\n- path: /z.md\n  contains: 200 EUR\n- max_files: 251\n\
        - search: EUR\n  finds: /z.md\n  within: 1\n";
    store.create(FILE, tests).await;
    for query in ["prefix=/old/", "prefix=/old/&dry_run=true"] {
        let error = gated(&import(&store, query, &archive).await);
        assert_eq!(broken(&error["tests"]), [3, 6], "{error}");
    }
    assert_eq!(store.version_count().await, 1);
    ok(&import(&store, "", &archive).await);
    assert_eq!(store.paths().await.len(), 252);
    assert_eq!(broken(&ok(&test(&store, &json!({})).await)["data"]), [0_u64; 0]);
}

/// Checks that each surface refuses to change the tests, and names path and scope.
async fn cannot_change(place: &Place, store: &Store, file: &Value, by: &Client) {
    let seen = store.seen_by(by);
    let other = store.create("/other.md", "x").await;
    let into = json!({"operations": [{"type": "update", "memory_id": other["id"], "path": "/.keepsake/c"}]});
    for change in [json!({"expires_at": "2999-01-01"}), json!({"pinned": false})] {
        let answer = seen.try_update(file, &change).await;
        assert!([400, 403].contains(&answer.status), "{change}: {}", answer.text);
    }
    for answer in [
        seen.upsert(FILE, "tests: []").await,
        seen.try_create("/.keepsake/other", "x").await,
        seen.try_update(file, &json!({"content": "tests: []"})).await,
        seen.try_update(file, &json!({"path": "/gone.md"})).await,
        seen.try_update(&other, &json!({"path": "/.keepsake/b"})).await,
        delete(by, &store.memory(file)).await,
        seen.try_restore(&file["memory_version_id"], &json!({})).await,
        seen.batch(&into).await,
    ] {
        let error = refused(&answer, 403, "permission_error");
        says(text(&error["message"]), &["/.keepsake/", "stores:admin"]);
    }
    // Other operations of a batch are made.
    for on_file in [
        json!({"type": "update", "memory_id": file["id"], "pinned": true}),
        json!({"type": "delete", "memory_id": file["id"]}),
    ] {
        let other = json!({"type": "upsert", "path": "/fine.md", "content": on_file["type"]});
        let results = ok(&batch(&seen, json!([other, on_file])).await)["data"].clone();
        assert_eq!(results[1]["status"], "failed", "{results}");
        assert_ne!(results[0]["status"], "failed", "{results}");
    }
    let path = "/memories/.keepsake/tests.yaml";
    for call in [
        json!({"command": "create", "path": "/memories/.keepsake/b", "file_text": "x"}),
        json!({"command": "str_replace", "path": path, "old_str": "true", "new_str": "false"}),
        json!({"command": "delete", "path": path}),
        json!({"command": "delete", "path": "/memories/.keepsake"}),
        json!({"command": "rename", "old_path": "/memories/.keepsake", "new_path": "/memories/b"}),
        json!({"command": "rename", "old_path": "/memories/other.md", "new_path": "/memories/.keepsake/c"}),
        block("memory_write", &json!({"path": path, "content": "tests: []"})),
        block("memory_delete", &json!({"path": path})),
    ] {
        let result = by.tool(&place.tenant, &call).await;
        assert!(result.is_error && result.content.contains("its administrators"), "{call}: {result:?}");
    }
}

pub(super) async fn tests_are_changed_by_administrators_and_hidden_from_agents(place: Place) {
    let store = place.store();
    let wrong = "gate: true\ntests:\n- search: a\n  within: 3\n";
    let refusal = "`content` of /.keepsake/tests.yaml is refused: line 3: a test";
    invalid(&store.try_create(FILE, wrong).await, refusal);
    let other = store.create("/wrong.yaml", wrong).await;
    invalid(&store.try_update(&other, &json!({"path": FILE})).await, "line 3");
    invalid(&store.batch(&json!({"operations": [create(FILE, wrong)]})).await, "line 3");
    let call = json!({"command": "create", "path": "/memories/.keepsake/tests.yaml", "file_text": wrong});
    let result = place.client.tool(&place.tenant, &call).await;
    assert!(result.is_error && result.content.contains("line 3"), "{result:?}");

    let tests = TESTS.replace("gate: true", "gate: false");
    let file = store.create(FILE, &tests).await;
    assert_eq!(file["pinned"], true);
    invalid(&store.try_update(&file, &json!({"pinned": false})).await, "`pinned` must not be false");
    let agent = place.key(&["memory:read", "memory:write"]).await;
    cannot_change(&place, &store, &file, &agent).await;
    assert_eq!(store.read(&file).await["content_sha256"], sha256(&tests));
    for call in [
        json!({"command": "view", "path": "/memories"}),
        block("memory_list", &json!({})),
        block("memory_list", &json!({"depth": 1})),
        block("memory_search", &json!({"query": "refund gate keepsake"})),
    ] {
        let said = agent.tool_ok(&place.tenant, &call).await;
        assert!(!said.contains("keepsake"), "{call}: {said}");
    }
    for call in [
        json!({"command": "view", "path": "/memories/.keepsake/tests.yaml"}),
        json!({"command": "view", "path": "/memories/.keepsake"}),
        block("memory_read", &json!({"path": "/memories/.keepsake/tests.yaml"})),
        block("memory_list", &json!({"path_prefix": "/memories/.keepsake"})),
    ] {
        let result = agent.tool(&place.tenant, &call).await;
        assert!(result.is_error && result.content.contains("does not exist"), "{call}: {result:?}");
    }
    let found = ok(&place.client.get(&format!("{}/search?query=refund", store.path)).await);
    assert_eq!(found["data"], json!([]));
    let view = json!({"command": "view", "path": "/memories/.keepsake/tests.yaml"});
    assert!(place.client.tool_ok(&place.tenant, &view).await.contains("refund limit"));
    store.delete(&file).await;
    not_found(&test(&store, &json!({})).await);
}

/// Of batches that are sent at once, as many are made as the tests allow.
pub(super) async fn batches_at_once_keep_the_tests_through(stores: &[Store; 2]) {
    stores[0].create(FILE, "gate: true\ntests:\n- max_files: 7\n").await;
    let batches = (0..14).map(|n| batch(&stores[n % 2], json!([create(&format!("/{n}"), "x")])));
    let (made, others) = parted(join_all(batches).await);
    for answer in &others {
        gated(answer);
    }
    assert_eq!(made.len(), 7, "{made:?}");
}
