//! Conventions of every route: names, objects, ids, times, null.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{
    PREVIEW, Place, STORES, all, delete, not_found, ok, patch, post_text, refused, strings, text,
};
use crate::support::Answer;
use crate::support::client::send;

/// The characters of ids: Crockford's base32.
const BASE32: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[track_caller]
pub(super) fn assert_id(value: &Value, prefix: &str) {
    let id = text(value);
    let rest = id.strip_prefix(prefix).unwrap_or_else(|| panic!("{id}"));
    assert_eq!(rest.len(), 26, "{id}");
    assert!(rest.chars().all(|character| BASE32.contains(character)), "{id}");
}

/// RFC 3339 in UTC with microseconds and `Z`.
#[track_caller]
pub(super) fn assert_time(value: &Value) {
    let time = text(value);
    let digits: String = time
        .chars()
        .map(|character| {
            if character.is_ascii_digit() {
                '0'
            } else {
                character
            }
        })
        .collect();
    assert_eq!(digits, "0000-00-00T00:00:00.000000Z", "{time}");
}

#[track_caller]
pub(super) fn assert_fields(object: &Value, expected: &[&str]) {
    let fields: BTreeSet<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    assert_eq!(fields, expected);
}

pub(super) async fn every_answer_names_its_request_and_its_tenant(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (memories, at) = (store.memories(), store.memory(&memory));
    let conflict = store.try_create("/a", "two").await;
    let precondition =
        json!({"content": "x", "precondition": {"type": "content_sha256", "content_sha256": "0".repeat(64)}});
    let answers: Vec<(u16, &str, Answer)> = vec![
        (200, "", client.get(STORES).await),
        (200, "", client.get(&store.path).await),
        (200, "", client.get(&memories).await),
        (200, "", client.get(&at).await),
        (200, "", client.get(&store.versions()).await),
        (200, "", client.post(STORES, &json!({"name": "a"})).await),
        (200, "", client.post(&at, &json!({})).await),
        (200, "", patch(client, &at, &json!({})).await),
        (
            400,
            "invalid_request_error",
            client.post(STORES, &json!({})).await,
        ),
        (
            400,
            "invalid_request_error",
            client.get(&format!("{memories}?limit=0")).await,
        ),
        (
            403,
            "permission_error",
            place.reader.post(STORES, &json!({"name": "a"})).await,
        ),
        (403, "permission_error", place.writer.get(&at).await),
        (
            404,
            "not_found_error",
            client.get(&format!("{memories}/nothing")).await,
        ),
        (404, "not_found_error", client.get("/v1/nothing").await),
        (
            405,
            "invalid_request_error",
            send(client.request(Method::PUT, &at)).await,
        ),
        (409, "memory_path_conflict_error", conflict),
        (
            409,
            "memory_precondition_failed_error",
            client.post(&at, &precondition).await,
        ),
        (
            409,
            "conflict_error",
            store.try_redact(&memory["memory_version_id"]).await,
        ),
        (
            413,
            "invalid_request_error",
            post_text(client, &memories, " ".repeat(700_000)).await,
        ),
        (
            415,
            "invalid_request_error",
            send(client.request(Method::POST, &memories).body("{}")).await,
        ),
        (200, "", delete(client, &at).await),
    ];
    let mut request_ids = BTreeSet::new();
    for (status, kind, answer) in &answers {
        if *status == 200 {
            ok(answer);
        } else {
            refused(answer, *status, kind);
        }
        let request_id = answer.header("request-id");
        assert_id(&json!(request_id), "req_");
        assert!(request_ids.insert(request_id), "{request_id} was used twice");
        assert_eq!(
            answer.header("anthropic-workspace-id"),
            place.tenant.id.to_string(),
            "{}",
            answer.text
        );
    }
}

/// Every route below `/v1` with a store, a memory and a version that are there.
pub(super) fn routes(store: &str, memory: &str, version: &str) -> Vec<(Method, String)> {
    let at = format!("{STORES}/{store}");
    vec![
        (Method::GET, at.clone()),
        (Method::POST, at.clone()),
        (Method::PATCH, at.clone()),
        (Method::GET, format!("{at}/memories")),
        (Method::POST, format!("{at}/memories")),
        (Method::GET, format!("{at}/memories/{memory}")),
        (Method::POST, format!("{at}/memories/{memory}")),
        (Method::PATCH, format!("{at}/memories/{memory}")),
        (Method::GET, format!("{at}/memory_versions")),
        (Method::GET, format!("{at}/memory_versions/{version}")),
        (Method::POST, format!("{at}/memory_versions/{version}/restore")),
        (Method::POST, format!("{at}/memory_versions/{version}/redact")),
        (Method::DELETE, format!("{at}/memories/{memory}")),
        (Method::POST, format!("{at}/tool_calls")),
        (Method::POST, format!("{at}/archive")),
        (Method::DELETE, at),
    ]
}

pub(super) async fn without_a_credential_every_route_is_401(place: Place) {
    let store = place.store();
    let memory = store.create("/a", "one").await;
    let mut routes = routes(&store.id, text(&memory["id"]), text(&memory["memory_version_id"]));
    routes.push((Method::GET, STORES.to_owned()));
    routes.push((Method::POST, STORES.to_owned()));
    for (method, path) in routes {
        for key in ["", "ks_live_unknown"] {
            let request = place.client.bare(method.clone(), &path).json(&json!({}));
            let answer = send(if key.is_empty() {
                request
            } else {
                request.header("x-api-key", key)
            })
            .await;
            refused(&answer, 401, "authentication_error");
            assert_eq!(answer.header("anthropic-workspace-id"), "", "{method} {path}");
        }
    }
    assert_eq!(store.read(&memory).await["content"], "one");
}

pub(super) async fn unknown_routes_and_methods_get_an_error_envelope(place: Place) {
    let store = place.store();
    let memory = store.create("/a", "one").await;
    let at = store.memory(&memory);
    let version = store.version(&memory["memory_version_id"]);
    for path in [
        "/v1/memory_store".to_owned(),
        format!("{}/nothing", store.path),
        format!("{}/", store.path),
        format!("{}/", store.memories()),
        format!("{at}/"),
        format!("{at}/nothing"),
        format!("{version}/nothing"),
        format!("{}//memories", store.path),
    ] {
        not_found(&place.client.get(&path).await);
    }
    for (method, path) in [
        (Method::PUT, STORES.to_owned()),
        (Method::DELETE, STORES.to_owned()),
        (Method::PATCH, STORES.to_owned()),
        (Method::PUT, store.path.clone()),
        (Method::GET, format!("{}/archive", store.path)),
        (Method::DELETE, format!("{}/archive", store.path)),
        (Method::DELETE, store.memories()),
        (Method::PATCH, store.memories()),
        (Method::PUT, at.clone()),
        (Method::POST, store.versions()),
        (Method::DELETE, version.clone()),
        (Method::POST, version.clone()),
        (Method::PATCH, version.clone()),
        (Method::GET, format!("{version}/redact")),
        (Method::GET, format!("{version}/restore")),
    ] {
        let answer = send(place.client.request(method.clone(), &path).json(&json!({}))).await;
        refused(&answer, 405, "invalid_request_error");
        assert_ne!(answer.header("allow"), "", "{method} {path}");
        assert_eq!(
            answer.header("anthropic-workspace-id"),
            place.tenant.id.to_string()
        );
    }
}

pub(super) async fn headers_of_the_sdk_are_accepted(place: Place) {
    let store = place.new_store("headers").await;
    let request = |method: Method, path: &str| {
        place
            .client
            .request(method, path)
            .header("anthropic-version", "2023-06-01")
            .header("anthropic-beta", PREVIEW)
            .header("x-stainless-retry-count", "0")
    };
    let body = json!({"path": "/a", "content": "one"});
    let made = ok(&send(request(Method::POST, &format!("{}?beta=true", store.memories())).json(&body)).await);
    for path in [
        format!("{}?beta=true", store.memory(&made)),
        format!("{STORES}?beta=true"),
    ] {
        ok(&send(request(Method::GET, &path)).await);
    }
    let own = request(Method::GET, &store.path).header("anthropic-workspace-id", place.tenant.id.to_string());
    ok(&send(own).await);
    let foreign = request(Method::GET, &store.path)
        .header("anthropic-workspace-id", "wrkspc_00000000000000000000000001");
    refused(&send(foreign).await, 403, "permission_error");
    let versioned = request(Method::GET, &store.path).header("anthropic-version", "1999-01-01");
    ok(&send(versioned).await);
    let deleted = send(request(
        Method::DELETE,
        &format!("{}?beta=true", store.memory(&made)),
    ))
    .await;
    assert_eq!(ok(&deleted), json!({"id": made["id"], "type": "memory_deleted"}));
}

pub(super) async fn objects_have_these_fields_and_no_others(place: Place) {
    let store = place.new_store("objects").await;
    let object = store.object().await;
    assert_fields(
        &object,
        &[
            "id",
            "type",
            "name",
            "description",
            "metadata",
            "created_at",
            "updated_at",
            "archived_at",
            "memory_count",
            "content_bytes",
            "expires_unused_after",
            "sensitive_data_policy",
        ],
    );
    assert_id(&object["id"], "memstore_");
    assert_time(&object["created_at"]);
    assert_time(&object["updated_at"]);

    let memory = store.create("/a", "one").await;
    assert_fields(
        &memory,
        &[
            "id",
            "type",
            "memory_store_id",
            "memory_version_id",
            "path",
            "content",
            "content_size_bytes",
            "content_sha256",
            "created_at",
            "updated_at",
            "size_bytes",
            "last_accessed_at",
            "expires_at",
            "pinned",
        ],
    );
    assert_id(&memory["id"], "mem_");
    assert_id(&memory["memory_version_id"], "memver_");
    assert_time(&memory["created_at"]);
    assert_time(&memory["updated_at"]);
    let listed = all(&place.client, &format!("{}?limit=1", store.memories())).await;
    assert_eq!(listed, std::slice::from_ref(&memory));

    let version = ok(&place
        .client
        .get(&store.version(&memory["memory_version_id"]))
        .await);
    let fields = [
        "id",
        "type",
        "memory_store_id",
        "memory_id",
        "operation",
        "path",
        "content",
        "content_size_bytes",
        "content_sha256",
        "created_at",
        "created_by",
        "redacted_at",
        "redacted_by",
    ];
    assert_fields(&version, &fields);
    assert_time(&version["created_at"]);
    assert_fields(&version["created_by"], &["type", "api_key_id"]);
    assert_id(&version["created_by"]["api_key_id"], "apikey_");
    let update = store.update(&memory, &json!({"content": "two"})).await;
    assert_time(&update["updated_at"]);
    let redacted = store.redact(&memory["memory_version_id"]).await;
    assert_fields(&redacted, &[fields.as_slice(), &["content_also_in"]].concat());
    assert_time(&redacted["redacted_at"]);
    assert_time(
        &ok(&place
            .client
            .post(&format!("{}/archive", store.path), &json!({}))
            .await)["archived_at"],
    );
}

pub(super) async fn ids_sort_by_creation_time(place: Place) {
    let store = place.store();
    let (mut memories, mut versions, mut stores) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..8 {
        let memory = store.create(&format!("/{n}"), "x").await;
        stores.push(place.new_store("a").await.id);
        memories.push(memory);
    }
    versions.extend(strings(&memories, "memory_version_id"));
    for ids in [strings(&memories, "id"), versions, stores] {
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }
}

pub(super) async fn null_equals_an_omitted_field(place: Place) {
    let client = &place.client;
    let nulls = json!({
        "name": "nulls", "description": null, "metadata": null,
        "expires_unused_after": null, "sensitive_data_policy": null,
    });
    let made = ok(&client.post(STORES, &nulls).await);
    assert_eq!(
        (
            &made["description"],
            &made["metadata"],
            &made["sensitive_data_policy"]
        ),
        (&json!(""), &json!({}), &json!("off"))
    );
    let store = super::support::Store::new(client, text(&made["id"]));
    let set = json!({
        "description": "kept", "metadata": {"k": "v"},
        "expires_unused_after": 3600, "sensitive_data_policy": "reject",
    });
    let before = ok(&client.post(&store.path, &set).await);
    let nulls = json!({
        "name": null, "description": null, "metadata": null,
        "expires_unused_after": null, "sensitive_data_policy": null,
    });
    for answer in [
        client.post(&store.path, &nulls).await,
        patch(client, &store.path, &nulls).await,
    ] {
        assert_eq!(ok(&answer), before);
    }

    let new = json!({"path": "/a", "content": "one", "precondition": null});
    let memory = ok(&client.post(&store.memories(), &new).await);
    let nulls = json!({"path": null, "content": null, "pinned": null, "precondition": null});
    for answer in [
        client.post(&store.memory(&memory), &nulls).await,
        patch(client, &store.memory(&memory), &nulls).await,
    ] {
        assert_eq!(ok(&answer), memory);
    }
    let version = &memory["memory_version_id"];
    ok(&store.try_restore(version, &json!({"precondition": null})).await);
    assert_eq!(store.version_count().await, 1);
}
