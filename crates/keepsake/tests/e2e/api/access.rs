//! The objects that a credential sees, and its permissions.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::conventions::routes;
use super::support::{
    PREVIEW, Place, STORES, Store, all, delete, not_found, ok, patch, post_with, refused, strings, text,
};
use crate::support::Client;
use crate::support::client::send;

/// A valid body of a route, and an invalid one.
fn bodies(path: &str) -> [Value; 2] {
    let good = if path.ends_with("/memories") {
        json!({"path": "/new", "content": "x"})
    } else if path.ends_with("/tool_calls") {
        json!({"command": "view", "path": "/memories"})
    } else if path.contains("/memories/") {
        json!({"content": "x", "path": "/moved"})
    } else if path.ends_with("/archive") || path.contains("/memory_versions/") {
        json!({})
    } else {
        json!({"name": "x"})
    };
    [good, json!({"unknown": true})]
}

fn request(client: &Client, method: &Method, path: &str, body: &Value) -> RequestBuilder {
    let request = client.request(method.clone(), path);
    if *method == Method::GET || *method == Method::DELETE {
        request
    } else {
        request.json(body)
    }
}

/// Asks every route for each of `ids` in turn, the first of which never
/// existed: all answers must be its 404.
async fn assert_all_alike(client: &Client, ids: &[[String; 3]]) {
    let [store, memory, version] = &ids[0];
    let asked = routes(store, memory, version);
    for (number, (method, path)) in asked.iter().enumerate() {
        for body in bodies(path) {
            let never = send(request(client, method, path, &body)).await;
            for [store, memory, version] in &ids[1..] {
                let path = &routes(store, memory, version)[number].1;
                let answer = send(request(client, method, path, &body)).await;
                assert_eq!(answer.lasting(), never.lasting(), "{method} {path} {body}");
            }
        }
        let [good, _] = bodies(path);
        not_found(&send(request(client, method, path, &good)).await);
    }
}

/// Unknown ids, well-formed and malformed.
fn nowhere() -> [Vec<String>; 3] {
    ["memstore_", "mem_", "memver_"].map(|prefix| {
        [
            format!("{prefix}00000000000000000000000001"),
            format!("{prefix}01ARZ3NDEKTSV4RRFFQ69G5FA"),
            format!("{prefix}01ARZ3NDEKTSV4RRFFQ69G5FAVX"),
            format!("{prefix}UUUUUUUUUUUUUUUUUUUUUUUUUU"),
            prefix.to_owned(),
            "x".to_owned(),
            "%00".to_owned(),
            "%FF".to_owned(),
            "..%2F".to_owned(),
            "apikey_01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
        ]
        .to_vec()
    })
}

async fn ids_in(store: &Store) -> [String; 3] {
    let memory = store.create("/theirs", "one").await;
    let (id, version) = (text(&memory["id"]), text(&memory["memory_version_id"]));
    [store.id.clone(), id.to_owned(), version.to_owned()]
}

pub(super) async fn foreign_ids_answer_like_ids_that_never_existed(place: Place) {
    let foreign = place.store();
    let theirs = ids_in(&foreign).await;
    let made = ok(&place.stranger.post(STORES, &json!({"name": "mine"})).await);
    let own = Store::new(&place.stranger, text(&made["id"]));
    let mine = ids_in(&own).await;
    let [stores, memories, versions] = nowhere();
    // A store of another tenant, with ids below it that are its own or not.
    let mut ids: Vec<_> = stores
        .iter()
        .map(|store| [store.clone(), memories[0].clone(), versions[0].clone()])
        .collect();
    ids.push(theirs.clone());
    ids.push([theirs[0].clone(), mine[1].clone(), mine[2].clone()]);
    ids.push([theirs[0].to_lowercase(), theirs[1].clone(), theirs[2].clone()]);
    ids.push([theirs[1].clone(), theirs[1].clone(), theirs[2].clone()]);
    assert_all_alike(&place.stranger, &ids).await;
    let stands = foreign.object().await;
    assert_eq!(
        (&stands["memory_count"], &stands["archived_at"]),
        (&json!(1), &Value::Null)
    );
    assert_eq!(foreign.version_count().await, 1);

    // The other tenant's memory and version, below the caller's store.
    let path_of = |memory: &str, version: &str| {
        let path = &own.path;
        [
            (Method::GET, format!("{path}/memories/{memory}")),
            (Method::POST, format!("{path}/memories/{memory}")),
            (Method::PATCH, format!("{path}/memories/{memory}")),
            (Method::DELETE, format!("{path}/memories/{memory}")),
            (Method::GET, format!("{path}/memory_versions/{version}")),
            (Method::POST, format!("{path}/memory_versions/{version}/restore")),
            (Method::POST, format!("{path}/memory_versions/{version}/redact")),
        ]
    };
    let never = path_of(&memories[0], &versions[0]);
    for (memory, version) in memories
        .iter()
        .zip(&versions)
        .chain([(&theirs[1], &theirs[2]), (&theirs[2], &theirs[1])])
    {
        for ((method, path), (_, never)) in path_of(memory, version).iter().zip(&never) {
            for body in bodies(path) {
                let answer = send(request(&place.stranger, method, path, &body)).await;
                let never = send(request(&place.stranger, method, never, &body)).await;
                assert_eq!(answer.lasting(), never.lasting(), "{method} {path} {body}");
            }
            let [good, _] = bodies(path);
            not_found(&send(request(&place.stranger, method, path, &good)).await);
        }
    }
    assert_eq!(own.version_count().await, 1);
}

pub(super) async fn objects_of_another_store_answer_like_ids_that_never_existed(place: Place) {
    let (here, elsewhere) = (place.store(), place.new_store("elsewhere").await);
    let [_, memory, version] = ids_in(&elsewhere).await;
    let never = [
        "mem_00000000000000000000000001",
        "memver_00000000000000000000000001",
    ];
    let path_of = |memory: &str, version: &str| {
        routes(&here.id, memory, version)
            .into_iter()
            .filter(|(_, path)| path.contains("/memories/") || path.contains("/memory_versions/"))
    };
    for ((method, path), (_, never)) in path_of(&memory, &version).zip(path_of(never[0], never[1])) {
        let [body, _] = bodies(&path);
        let answer = send(request(&place.client, &method, &path, &body)).await;
        let never = send(request(&place.client, &method, &never, &body)).await;
        not_found(&answer);
        assert_eq!(answer.lasting(), never.lasting(), "{method} {path}");
    }
    // A filter by it finds nothing here.
    let listed = all(&place.client, &format!("{}?memory_id={memory}", here.versions())).await;
    assert_eq!(listed, [Value::Null; 0]);
    assert_eq!(elsewhere.version_count().await, 1);
}

pub(super) async fn deleted_store_answers_like_one_that_never_existed(place: Place) {
    let store = place.new_store("gone").await;
    let gone = ids_in(&store).await;
    ok(&delete(&place.client, &store.path).await);
    let [stores, memories, versions] = nowhere();
    let never = [stores[0].clone(), memories[0].clone(), versions[0].clone()];
    assert_all_alike(&place.client, &[never, gone]).await;
}

pub(super) async fn each_route_asks_for_its_scope(place: Place) {
    const READ: &str = "memory:read";
    const WRITE: &str = "memory:write";
    const ADMIN: &str = "stores:admin";
    let store = place.store();
    let memory = store.create("/a", "one").await;
    let doomed = store.create("/doomed", "one").await;
    let edited = store.create("/edited", "secret").await;
    store.update(&edited, &json!({"content": "harmless"})).await;
    let second = place.new_store("second").await;
    let third = place.new_store("third").await;
    let (at, memories) = (store.memory(&memory), store.memories());
    let version = store.version(&memory["memory_version_id"]);
    let old = store.version(&edited["memory_version_id"]);
    let empty = json!({});
    let routes = [
        (READ, Method::GET, STORES.to_owned(), &empty),
        (READ, Method::GET, store.path.clone(), &empty),
        (READ, Method::GET, memories.clone(), &empty),
        (READ, Method::GET, format!("{memories}?view=full"), &empty),
        (READ, Method::GET, at.clone(), &empty),
        (READ, Method::GET, format!("{at}?view=basic"), &empty),
        (READ, Method::GET, store.versions(), &empty),
        (READ, Method::GET, version.clone(), &empty),
        (
            WRITE,
            Method::POST,
            memories.clone(),
            &json!({"path": "/new", "content": "x"}),
        ),
        (WRITE, Method::POST, at.clone(), &json!({"content": "x"})),
        (WRITE, Method::PATCH, at.clone(), &json!({"content": "y"})),
        (WRITE, Method::DELETE, store.memory(&doomed), &empty),
        (ADMIN, Method::POST, STORES.to_owned(), &json!({"name": "a"})),
        (ADMIN, Method::POST, format!("{old}/redact"), &empty),
        (ADMIN, Method::POST, format!("{}/archive", second.path), &empty),
        (ADMIN, Method::DELETE, third.path.clone(), &empty),
    ];
    let keys = [
        (READ, &place.reader),
        (WRITE, &place.writer),
        (ADMIN, &place.admin),
    ];
    for (needed, method, path, body) in &routes {
        // Keys without the scope come first: a deletion affects all keys.
        for (scope, client) in keys.iter().filter(|(scope, _)| scope != needed) {
            let answer = send(request(client, method, path, body)).await;
            let error = refused(&answer, 403, "permission_error");
            assert!(
                text(&error["message"]).contains(needed),
                "{scope}: {method} {path}: {error}"
            );
        }
        let (_, client) = keys.iter().find(|(scope, _)| scope == needed).unwrap();
        ok(&send(request(client, method, path, body)).await);
    }
    // A key without the read scope gets no content.
    let full = format!("{at}?view=full");
    for answer in [
        patch(&place.writer, &at, &empty).await,
        place.writer.post(&format!("{version}/restore"), &empty).await,
        place.reader.post(&format!("{version}/restore"), &empty).await,
        place.writer.post(&full, &json!({"path": "/renamed"})).await,
        patch(&place.writer, &full, &json!({})).await,
        place
            .writer
            .post(&format!("{version}/restore?view=full"), &empty)
            .await,
    ] {
        refused(&answer, 403, "permission_error");
    }
    assert_eq!(store.read(&memory).await["path"], "/a");
}

/// Checks that an answer has none of the secrets.
fn assert_hides(answer: &Value, secrets: &[&str]) {
    let text = answer.to_string();
    for secret in secrets {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

pub(super) async fn write_only_key_sees_nothing_of_existing_memories(place: Place) {
    let store = place.store();
    let memory = store.create("/known", "secret of 18 bytes").await;
    let below = store.create("/dir/hidden", "x").await;
    let at = store.memory(&memory);
    let secrets: Vec<_> = ["content_sha256", "memory_version_id", "created_at", "updated_at"]
        .map(|field| text(&memory[field]))
        .to_vec();
    // A memory that the key creates is shown in full.
    let made = ok(&place
        .writer
        .post(&store.memories(), &json!({"path": "/own", "content": "x"}))
        .await);
    assert_eq!(
        store.read(&made).await["memory_version_id"],
        made["memory_version_id"]
    );
    assert_eq!(made["path"], "/own");
    for (body, path, size) in [
        (json!({"path": "/moved"}), "/moved", 0),
        (json!({"pinned": true}), "", 0),
        (json!({"pinned": true, "path": "/moved"}), "/moved", 0),
        // Nothing is changed by it, and the answer is the same as if it were.
        (
            json!({"path": "/own", "precondition": {"type": "not_exists"}}),
            "",
            0,
        ),
        (json!({"content": "secret of 18 bytes"}), "", 18),
        (json!({"content": "new"}), "", 3),
    ] {
        let answer = ok(&patch(&place.writer, &at, &body).await);
        assert_eq!(answer["id"], memory["id"]);
        assert_eq!(answer["path"], path, "{body}: {answer}");
        assert_eq!(answer["content_size_bytes"], size, "{body}: {answer}");
        assert_eq!(answer["memory_version_id"], "", "{body}: {answer}");
        assert_eq!(answer["last_accessed_at"], Value::Null, "{body}: {answer}");
        let unsent = body.get("content").is_none();
        assert_eq!(answer["content_sha256"] == "", unsent, "{body}: {answer}");
        if unsent {
            assert_hides(&answer, &secrets);
        }
        assert_hides(&answer, &secrets[1..]);
    }
    let now = store.read(&memory).await;
    assert_eq!((text(&now["content"]), text(&now["path"])), ("new", "/moved"));
    let secrets = [
        text(&now["content_sha256"]),
        text(&now["id"]),
        text(&below["id"]),
        "hidden",
    ];
    let stale = json!({"type": "content_sha256", "content_sha256": "0".repeat(64)});
    let create = |path: &str| json!({"path": path, "content": "y"});
    for (method, path, body) in [
        (
            Method::PATCH,
            at.clone(),
            json!({"content": "z", "precondition": stale}),
        ),
        (
            Method::DELETE,
            format!("{at}?expected_content_sha256={}", "0".repeat(64)),
            Value::Null,
        ),
        (Method::POST, store.memories(), create("/moved")),
        (Method::POST, store.memories(), create("/moved/below")),
        (Method::POST, store.memories(), create("/dir")),
        (
            Method::POST,
            store.memories(),
            json!({"path": "/moved", "content": "y", "precondition": {"type": "not_exists"}}),
        ),
    ] {
        let answer = send(request(&place.writer, &method, &path, &body)).await;
        assert_eq!(answer.status, 409, "{method} {path}: {}", answer.text);
        // The message may name the path that was sent, never a memory of others.
        let error = answer.json()["error"].clone();
        assert_hides(&error, &secrets[..1]);
        assert_hides(&error, &secrets[3..]);
        if !path.contains(text(&now["id"])) {
            assert_hides(&error, &secrets[1..3]);
        }
        for field in ["current_content_sha256", "memory_id"] {
            assert_eq!(error.get(field).unwrap_or(&Value::Null), &Value::Null, "{error}");
        }
        let conflicting = error.get("conflicting_memory_id");
        assert_eq!(conflicting.unwrap_or(&json!("")), "", "{error}");
    }
    // Replacing a memory by its path shows the memory's id only.
    let preview = ("anthropic-beta", PREVIEW);
    let replaced = post_with(&place.writer, &store.memories(), &create("/moved"), preview).await;
    let replaced = ok(&replaced);
    assert_eq!(
        (&replaced["id"], &replaced["memory_version_id"]),
        (&now["id"], &json!(""))
    );
    assert_hides(
        &replaced,
        &[text(&now["created_at"]), text(&now["content_sha256"])],
    );
}

pub(super) async fn store_metadata_needs_the_scope_of_stores(place: Place) {
    let store = place.new_store("of many").await;
    let metadata = json!({"metadata": {"user": "u1"}});
    let new = json!({"name": "both", "scopes": ["memory:read", "memory:write"]});
    let both = ok(&place.client.post("/v1/api_keys", &new).await);
    let both = place.client.with_key(text(&both["api_key"]));
    let error = refused(
        &patch(&both, &store.path, &metadata).await,
        403,
        "permission_error",
    );
    assert!(text(&error["message"]).contains("stores:admin"), "{error}");
    let removal = json!({"metadata": {"user": null}});
    refused(
        &patch(&both, &store.path, &removal).await,
        403,
        "permission_error",
    );
    assert_eq!(
        ok(&patch(&both, &store.path, &json!({"name": "mine", "metadata": {}})).await)["name"],
        "mine"
    );
    assert_eq!(
        ok(&patch(&place.client, &store.path, &metadata).await)["metadata"]["user"],
        "u1"
    );
    // An update that changes nothing shows the store.
    for body in [json!({}), json!({"name": "mine"})] {
        let error = refused(
            &patch(&place.writer, &store.path, &body).await,
            403,
            "permission_error",
        );
        assert!(text(&error["message"]).contains("memory:read"), "{error}");
    }
}

pub(super) async fn bound_key_sees_no_other_store(place: Place) {
    let (own, other) = (place.store(), place.new_store("other").await);
    let ids = ids_in(&other).await;
    let never = [
        "memstore_00000000000000000000000001".to_owned(),
        ids[1].clone(),
        ids[2].clone(),
    ];
    assert_all_alike(&place.bound, &[never, ids]).await;
    let seen = own.seen_by(&place.bound);
    seen.create("/a", "one").await;
    assert_eq!(other.version_count().await, 1);

    for n in 0..5 {
        place.new_store(&format!("more {n}")).await;
    }
    for limit in [1, 2, 100] {
        let listed = all(&place.bound, &format!("{STORES}?limit={limit}")).await;
        assert_eq!(strings(&listed, "id"), [own.id.as_str()]);
    }
    let answer = place.bound.post(STORES, &json!({"name": "a"})).await;
    refused(&answer, 403, "permission_error");
    assert_eq!(all(&place.client, &format!("{STORES}?limit=100")).await.len(), 7);
    assert_eq!(
        ok(&patch(&place.bound, &own.path, &json!({"name": "mine"})).await)["name"],
        "mine"
    );
    ok(&delete(&place.bound, &own.path).await);
    assert_eq!(
        all(&place.bound, &format!("{STORES}?limit=100")).await,
        [Value::Null; 0]
    );
}
