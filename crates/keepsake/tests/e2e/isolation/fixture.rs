//! Objects of two tenants, and unknown ids.

use std::collections::BTreeMap;

use keepsake_core::{BlobKey, ContentHash, TenantId};
use serde_json::{Value, json};

use crate::support::{Client, Deployment, secrets};

pub(super) const STORES: &str = "/v1/memory_stores";
pub(super) const SESSIONS: &str = "/v1/sessions";
const KEYS: &str = "/v1/api_keys";
const ERASURES: &str = "/v1/erasures";
/// The end of unknown ids.
pub(super) const NEVER: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// The kinds of ids that may be another tenant's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Store,
    Memory,
    Version,
    ApiKey,
    Erasure,
    Session,
    /// Of a store's attachment to the session.
    Resource,
    /// Of a store that is attached to no session.
    Spare,
    /// The path of the memory in the session.
    MountedPath,
    /// The hash of a memory's content.
    Hash,
    /// Of a memory, as the tool knows it.
    Path,
    /// Of a memory, in the API.
    ApiPath,
    /// That a memory is in.
    Directory,
    /// Of the list that is asked for.
    Page,
}

/// One of each kind.
#[derive(Debug, Clone)]
pub(super) struct Ids(BTreeMap<Kind, String>);

impl Ids {
    /// Unknown ids of the same length as real ones.
    pub(super) fn of_nobody() -> Self {
        let id = |prefix: &str| format!("{prefix}{NEVER}");
        Self(BTreeMap::from([
            (Kind::Store, id("memstore_")),
            (Kind::Memory, id("mem_")),
            (Kind::Version, id("memver_")),
            (Kind::ApiKey, id("apikey_")),
            (Kind::Erasure, id("erasure_")),
            (Kind::Session, id("sesn_")),
            (Kind::Resource, id("sesrsc_")),
            (Kind::Spare, id("memstore_")),
            (Kind::MountedPath, "/memories/nora/nora/one".to_owned()),
            (Kind::Hash, ContentHash::of(b"nobody's").to_string()),
            (Kind::Path, "/memories/nora/one".to_owned()),
            (Kind::ApiPath, "/nora/one".to_owned()),
            (Kind::Directory, "/nora/".to_owned()),
        ]))
    }

    #[track_caller]
    pub(super) fn get(&self, kind: Kind) -> &str {
        self.0.get(&kind).unwrap_or_else(|| panic!("there is no {kind:?}"))
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.0.contains_key(&kind)
    }

    pub(super) fn set(&mut self, kind: Kind, value: String) {
        self.0.insert(kind, value);
    }

    pub(super) fn path(&self) -> &str {
        self.get(Kind::Path)
    }

    /// These values, with those of some kinds replaced by the values of `others`.
    pub(super) fn with(&self, kinds: &[Kind], others: &Self) -> Self {
        let mut mixed = self.clone();
        for kind in kinds {
            mixed.set(*kind, others.get(*kind).to_owned());
        }
        mixed
    }
}

/// A store with two memories, the first of which was changed once.
#[derive(Debug)]
pub(super) struct Fixture {
    pub(super) ids: Ids,
}

impl Fixture {
    /// Creates the fixture; all its texts contain `label`.
    pub(super) async fn new(client: &Client, label: &str) -> Self {
        let new = async |what: &str| {
            let store = made(client, STORES, &json!({"name": format!("{what} of {label}")})).await;
            text(&store["id"]).to_owned()
        };
        let [store, second, spare] = [new("store").await, new("second").await, new("spare").await];
        let mut fixture = Self::in_store(client, label, &store).await;
        // A second attached store, for a second page of resources.
        let session = format!("{SESSIONS}/{}", fixture.ids.get(Kind::Session));
        let resource = json!({"type": "memory_store", "memory_store_id": second});
        made(client, &format!("{session}/resources"), &resource).await;
        fixture.ids.set(Kind::Spare, spare);
        fixture
    }

    /// Fills a store that is there.
    pub(super) async fn in_store(client: &Client, label: &str, store: &str) -> Self {
        let memories = format!("{STORES}/{store}/memories");
        let new =
            |name: &str| json!({"path": format!("/{label}/{name}"), "content": format!("{label} first")});
        let memory = made(client, &memories, &new("one")).await;
        made(client, &memories, &new("two")).await;
        let (id, version) = (text(&memory["id"]), text(&memory["memory_version_id"]));
        let scopes = ["memory:read", "memory:write"];
        let new_key =
            json!({"name": format!("key of {label}"), "scopes": scopes, "memory_store_ids": [store]});
        let key = made(client, KEYS, &new_key).await;
        secrets::remember(text(&key["api_key"]), "an API key");
        // Only versions other than the head can be redacted.
        let edit = json!({"content": format!("{label} second")});
        let by_key = client.with_key(text(&key["api_key"]));
        let edited = made(&by_key, &format!("{memories}/{id}"), &edit).await;
        let session = session_on(client, label, store).await;
        let mounted = text(&session["resources"][0]["mount_path"]).replace("/mnt/memory/", "/memories/");
        // Erases a path without memories, so that nothing is removed.
        let erased = json!({"memory_store_id": store, "path_prefix": "/none/"});
        let erasure = made(client, ERASURES, &erased).await;
        Self {
            ids: Ids(BTreeMap::from([
                (Kind::Store, store.to_owned()),
                (Kind::Memory, id.to_owned()),
                (Kind::Version, version.to_owned()),
                (Kind::ApiKey, text(&key["id"]).to_owned()),
                (Kind::Erasure, text(&erasure["id"]).to_owned()),
                (Kind::Session, text(&session["id"]).to_owned()),
                (Kind::Resource, text(&session["resources"][0]["id"]).to_owned()),
                (Kind::Spare, store.to_owned()),
                (Kind::MountedPath, format!("{mounted}/{label}/one")),
                (Kind::Hash, text(&edited["content_sha256"]).to_owned()),
                (Kind::Path, format!("/memories/{label}/one")),
                (Kind::ApiPath, format!("/{label}/one")),
                (Kind::Directory, format!("/{label}/")),
            ])),
        }
    }
}

/// A session with one store, and two calls in it.
pub(super) async fn session_on(client: &Client, label: &str, store: &str) -> Value {
    let new = json!({
        "agent": "agent_1", "environment_id": format!("environment of {label}"), "title": format!("session of {label}"),
        "resources": [{"type": "memory_store", "memory_store_id": store}],
    });
    let session = made(client, SESSIONS, &new).await;
    secrets::remember(text(&session["token"]), "a session's token");
    let calls = format!("{SESSIONS}/{}/tool_calls", text(&session["id"]));
    for _ in 0..2 {
        made(client, &calls, &json!({"command": "view", "path": "/memories"})).await;
    }
    session
}

/// Posts what must be carried out.
pub(super) async fn made(client: &Client, path: &str, body: &Value) -> Value {
    let answer = client.post(path, body).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.json()
}

#[track_caller]
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string"))
}

/// All that a tenant can list, without reading a memory.
pub(super) async fn snapshot(client: &Client) -> Vec<Value> {
    let mut all = listed(client, &format!("{STORES}?include_archived=true&limit=100")).await;
    let stores: Vec<_> = all.iter().map(|store| text(&store["id"]).to_owned()).collect();
    for store in stores {
        all.append(&mut snapshot_of_store(client, &store).await);
    }
    for mut key in listed(client, &format!("{KEYS}?limit=100")).await {
        // Asking is using it.
        key["last_used_at"] = Value::Null;
        all.push(key);
    }
    all.append(&mut listed(client, &format!("{SESSIONS}?include_archived=true&limit=100")).await);
    // How far they are is another matter.
    let erasures = listed(client, &format!("{ERASURES}?limit=100")).await;
    all.extend(erasures.iter().map(|erasure| json!({"id": erasure["id"]})));
    all
}

/// The current and former content of a store.
pub(super) async fn snapshot_of_store(client: &Client, store: &str) -> Vec<Value> {
    let path = format!("{STORES}/{store}");
    let mut all = listed(client, &format!("{path}/memories?limit=100")).await;
    all.append(&mut listed(client, &format!("{path}/memory_versions?limit=20&view=full")).await);
    let view = json!({"command": "view", "path": "/memories"});
    all.push(made(client, &format!("{path}/tool_calls"), &view).await);
    all
}

/// The same, without the times when memories were last read.
pub(super) fn unread(mut items: Vec<Value>) -> Vec<Value> {
    for item in &mut items {
        if let Some(time) = item.get_mut("last_accessed_at") {
            *time = Value::Null;
        }
    }
    items
}

async fn listed(client: &Client, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut page = String::new();
    loop {
        let answer = client.get(&format!("{path}{page}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let body = answer.json();
        items.extend_from_slice(body["data"].as_array().unwrap());
        match body["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => return items,
        }
    }
}

/// The ids, names, paths, contents and hashes in what a tenant listed.
pub(super) fn secrets_of(items: &[Value]) -> Vec<String> {
    const TELLING: [&str; 11] = [
        "id",
        "environment_id",
        "title",
        "memory_id",
        "memory_store_id",
        "memory_version_id",
        "api_key_id",
        "name",
        "path",
        "content",
        "content_sha256",
    ];
    fn collect(value: &Value, found: &mut Vec<String>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            match value {
                Value::String(text) if TELLING.contains(&name.as_str()) => found.push(text.clone()),
                value => collect(value, found),
            }
        }
    }
    let mut found = Vec::new();
    for item in items {
        collect(item, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

impl Deployment {
    /// The keys of a tenant's blobs, in order.
    pub(super) async fn blob_keys(&self, tenant_id: TenantId) -> Vec<BlobKey> {
        let listed = self.blobs().await.list(None, None, 100_000).await.unwrap();
        let keys = listed.into_iter().map(|blob| blob.key);
        let mut keys: Vec<_> = keys.filter(|key| key.tenant_id == tenant_id).collect();
        keys.sort();
        keys
    }
}
