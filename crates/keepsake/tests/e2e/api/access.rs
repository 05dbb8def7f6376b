//! Whose objects a credential sees, and what it may do with them.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::conventions::routes;
use super::support::{Place, STORES, Store, all, delete, not_found, ok, patch, refused, strings, text};
use crate::support::Client;
use crate::support::client::send;

/// A body that a route takes, and one that none does.
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

/// Ids that nobody ever made, whole and malformed.
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

    // Their memory and version, in one's own store.
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

pub(super) async fn store_deleted_is_told_as_one_that_never_existed(place: Place) {
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
        (WRITE, Method::POST, format!("{version}/restore"), &empty),
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
        // Who may not comes first: what is deleted is gone for all.
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
    // Who may only write is not shown what is there.
    let full = format!("{at}?view=full");
    for answer in [
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

pub(super) async fn key_bound_to_a_store_is_told_of_no_other(place: Place) {
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
