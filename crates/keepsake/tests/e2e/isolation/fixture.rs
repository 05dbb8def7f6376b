use keepsake_core::{BlobKey, ContentHash, TenantId};

use super::*;

const KEYS: &str = "/v1/api_keys";
const ERASURES: &str = "/v1/erasures";
/// The end of unknown ids.
pub(super) const NEVER: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// The kinds of ids that may be another tenant's, as requests name them in braces. `resource` is
/// a store's attachment to the session, `spare` a store that is attached to no session, `hash`
/// that of a memory's content, `path` a memory as the tool knows it, `api_path` and `directory`
/// the same in the API, and `page` leads on in the list that is asked for.
const KINDS: &str =
    "api_key api_path directory erasure hash memory page path resource session spare store undo version";

pub(super) fn kinds_in(request: &str) -> Vec<&'static str> {
    KINDS.split(' ').filter(|kind| request.contains(&format!("{{{kind}}}"))).collect()
}

/// One id of each kind. `mounted_path` is the path of the memory in the session, and so that of
/// the same owner.
#[derive(Debug, Clone)]
pub(super) struct Ids(BTreeMap<&'static str, String>);

impl Ids {
    /// Unknown ids of the same length as real ones.
    pub(super) fn of_nobody() -> Self {
        let id = |prefix: &str| format!("{prefix}_{NEVER}");
        Self(BTreeMap::from([
            ("store", id("memstore")),
            ("memory", id("mem")),
            ("version", id("memver")),
            ("api_key", id("apikey")),
            ("erasure", id("erasure")),
            ("session", id("sesn")),
            ("resource", id("sesrsc")),
            ("spare", id("memstore")),
            ("undo", id("memundo")),
            ("mounted_path", "/memories/nora/nora/one".to_owned()),
            ("hash", ContentHash::of(b"nobody's").to_string()),
            ("path", "/memories/nora/one".to_owned()),
            ("api_path", "/nora/one".to_owned()),
            ("directory", "/nora/".to_owned()),
        ]))
    }

    #[track_caller]
    pub(super) fn get(&self, kind: &str) -> &str {
        self.0.get(kind).unwrap_or_else(|| panic!("there is no {kind}"))
    }

    pub(super) fn set(&mut self, kind: &'static str, value: &str) {
        self.0.insert(kind, value.to_owned());
    }

    pub(super) fn fill(&self, request: &str) -> String {
        let kinds = self.0.iter();
        kinds.fold(request.to_owned(), |text, (kind, id)| text.replace(&format!("{{{kind}}}"), id))
    }

    pub(super) fn body(&self, body: &str) -> Value {
        serde_json::from_str(&self.fill(body)).unwrap()
    }

    pub(super) fn with(&self, kinds: &[&'static str], others: &Self) -> Self {
        let mut mixed = self.clone();
        for &kind in kinds {
            mixed.set(kind, others.get(kind));
        }
        mixed
    }

    /// Creates stores, memories and all else; all texts contain `label`.
    pub(super) async fn of_new(client: &Client, label: &str) -> Self {
        let new = async |what: &str| Store::make(client, &format!("{what} of {label}")).await.id;
        let [store, second, spare] = [new("store").await, new("second").await, new("spare").await];
        let mut ids = Self::in_store(client, label, &store).await;
        // A second attached store, for a second page of resources.
        let resource = json!({"type": "memory_store", "memory_store_id": second});
        made(client, &ids.fill("/v1/sessions/{session}/resources"), &resource).await;
        ids.set("spare", &spare);
        ids
    }

    /// Fills a store that is there with two memories, the first of which is changed once.
    pub(super) async fn in_store(client: &Client, label: &str, store: &str) -> Self {
        let memories = format!("{STORES}/{store}/memories");
        let content = format!("{label} first");
        let new = |name: &str| json!({"path": format!("/{label}/{name}"), "content": content});
        // Two deleted memories, for a second page of them.
        for _ in 0..2 {
            Store::new(client, store).delete(&made(client, &memories, &new("one")).await).await;
        }
        let memory = made(client, &memories, &new("one")).await;
        made(client, &memories, &new("two")).await;
        let scopes = ["memory:read", "memory:write"];
        let key = json!({"name": format!("key of {label}"), "scopes": scopes, "memory_store_ids": [store]});
        let key = made(client, KEYS, &key).await;
        // Only versions other than the head can be redacted.
        let edit = json!({"content": format!("{label} second")});
        let by_key = client.with_key(text(&key["api_key"]));
        let edited = made(&by_key, &format!("{memories}/{}", text(&memory["id"])), &edit).await;
        let session = session_on(client, label, store).await;
        let resource = &session["resources"][0];
        let mounted = text(&resource["mount_path"]).replace("/mnt/memory/", "/memories/");
        // Two memories that were read, for a second page of readers.
        for name in ["one", "two"] {
            let session = format!("{SESSIONS}/{}", text(&session["id"]));
            view_in(client, &session, &format!("{mounted}/{label}/{name}")).await;
        }
        // Erases a path without memories, so that nothing is removed.
        let erased = json!({"memory_store_id": store, "path_prefix": "/none/"});
        let erasure = made(client, ERASURES, &erased).await;
        let id = |object: &Value| text(&object["id"]).to_owned();
        Self(BTreeMap::from([
            ("store", store.to_owned()),
            ("memory", id(&memory)),
            ("version", text(&memory["memory_version_id"]).to_owned()),
            ("api_key", id(&key)),
            ("erasure", id(&erasure)),
            ("session", id(&session)),
            ("resource", id(resource)),
            ("spare", store.to_owned()),
            // `targets` makes one where it is needed.
            ("undo", format!("memundo_{NEVER}")),
            ("mounted_path", format!("{mounted}/{label}/one")),
            ("hash", text(&edited["content_sha256"]).to_owned()),
            ("path", format!("/memories/{label}/one")),
            ("api_path", format!("/{label}/one")),
            ("directory", format!("/{label}/")),
        ]))
    }
}

/// An undo of so many memories that it has an id. The memories are erased afterwards.
pub(super) async fn undo_in(client: &Client, label: &str, store: &str) -> String {
    let (path, many) = (format!("{STORES}/{store}"), format!("/{label}/many/"));
    for part in 0..2 {
        let create = |n| json!({"type": "create", "path": format!("{many}{part}/{n}"), "content": ""});
        let operations: Vec<_> = (0..251).map(create).collect();
        let batch = format!("{path}/memories/batch?memories=false");
        made(client, &batch, &json!({"operations": operations})).await;
    }
    let mut undo = made(client, &format!("{path}/undo"), &json!({"path_prefix": many})).await;
    let progress = format!("{path}/undo/{}", text(&undo["id"]));
    while undo["status"] == "in_progress" {
        tokio::task::yield_now().await;
        undo = ok(&client.get(&progress).await);
    }
    let erased = json!({"memory_store_id": store, "path_prefix": many});
    client.receipt(&made(client, ERASURES, &erased).await).await;
    text(&undo["id"]).to_owned()
}

/// A session with one store, and two calls in it.
pub(super) async fn session_on(client: &Client, label: &str, store: &str) -> Value {
    let new = json!({
        "agent": "agent_1", "environment_id": format!("environment of {label}"), "title": format!("session of {label}"),
        "resources": [{"type": "memory_store", "memory_store_id": store}],
    });
    let session = made(client, SESSIONS, &new).await;
    for _ in 0..2 {
        view_in(client, &format!("{SESSIONS}/{}", text(&session["id"])), "/memories").await;
    }
    session
}

pub(super) async fn made(client: &Client, path: &str, body: &Value) -> Value {
    let made = ok(&client.post(path, body).await);
    remember_secret_of(&made);
    made
}

pub(super) fn remember_secret_of(made: &Value) {
    if let Some(secret) = made["api_key"].as_str().or(made["token"].as_str()) {
        secrets::remember(secret, "an API key or a session's token");
    }
}

/// All that a tenant can list, without reading a memory.
pub(super) async fn snapshot(client: &Client) -> Vec<Value> {
    let mut all = client.all(&format!("{STORES}?include_archived=true&limit=100")).await;
    let stores: Vec<_> = all.iter().map(|store| text(&store["id"]).to_owned()).collect();
    for store in stores {
        all.append(&mut snapshot_of_store(client, &store).await);
    }
    for mut key in client.all(&format!("{KEYS}?limit=100")).await {
        // Asking is using it.
        key["last_used_at"] = Value::Null;
        all.push(key);
    }
    all.append(&mut client.all(&format!("{SESSIONS}?include_archived=true&limit=100")).await);
    // How far they are is another matter.
    let erasures = client.all(&format!("{ERASURES}?limit=100")).await;
    all.extend(erasures.iter().map(|erasure| json!({"id": erasure["id"]})));
    all
}

pub(super) async fn snapshot_of_store(client: &Client, store: &str) -> Vec<Value> {
    let path = format!("{STORES}/{store}");
    let mut all = client.all(&format!("{path}/memories?limit=100")).await;
    all.append(&mut client.all(&format!("{path}/memory_versions?limit=20&view=full")).await);
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

/// The ids, names, paths, contents and hashes in what a tenant listed.
pub(super) fn secrets_of(items: &[Value]) -> Vec<String> {
    const TELLING: &str = " id environment_id title memory_id memory_store_id memory_version_id api_key_id \
        name path content content_sha256 ";
    fn collect(value: &Value, found: &mut Vec<String>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            match value {
                Value::String(text) if TELLING.contains(&format!(" {name} ")) => found.push(text.clone()),
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
    pub(super) async fn blob_keys(&self, tenant_id: TenantId) -> Vec<BlobKey> {
        let listed = self.blobs().await.list(None, None, 100_000).await.unwrap();
        let keys = listed.into_iter().map(|blob| blob.key);
        let mut keys: Vec<_> = keys.filter(|key| key.tenant_id == tenant_id).collect();
        keys.sort();
        keys
    }
}
