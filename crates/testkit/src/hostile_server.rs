//! A server that answers the API's clients with what no server should send.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use keepsake_core::ContentHash;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{listen, serve};

/// The number in the id of the first memory.
const FIRST: usize = 1;

/// The fields of objects that are any text.
const TEXTS: &str = "memory_store_id operation name title description status action snippet line \
    sensitive_data_policy created_at updated_at expires_at archived_at processed_at";

/// What a server answers.
#[derive(Debug, Clone, Default)]
pub struct Hostility {
    pub paths: Vec<String>,
    /// The value of every text that has no form.
    pub text: String,
    pub pages: EndlessPages,
    pub refuses: bool,
    pub is_endless: bool,
    /// Sent as the archive of every store, unless it is empty.
    pub archive: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndlessPages {
    #[default]
    No,
    /// Each page has all items and names itself as the next one.
    Same,
    /// Each page but the first is empty and names a new one.
    Empty,
    /// With the first page, but those of the changes of a store do not end.
    Changes,
}

#[derive(Debug)]
pub struct HostileServer {
    url: String,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    hostility: Hostility,
    pages: AtomicUsize,
}

impl HostileServer {
    pub async fn start(hostility: Hostility) -> Self {
        let (listener, url) = listen().await;
        let shared = Arc::new(Shared { hostility, pages: AtomicUsize::new(0) });
        let router = Router::new().fallback(answer).with_state(shared);
        Self { url, _serving: serve(listener, router) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

async fn answer(State(shared): State<Arc<Shared>>, method: Method, uri: Uri, body: Bytes) -> Response {
    let hostility = &shared.hostility;
    if hostility.is_endless {
        let spaces = Bytes::from(vec![b' '; 64 << 10]);
        let body = futures::stream::repeat(Ok::<_, Infallible>(spaces));
        let json = [(header::CONTENT_TYPE, "application/json")];
        return (json, Body::from_stream(body)).into_response();
    }
    let segments: Vec<_> = uri.path().split('/').skip(2).collect();
    if hostility.refuses {
        let error = json!({"type": hostility.text, "message": hostility.text});
        let body = json!({"type": "error", "error": error, "request_id": hostility.text});
        return (StatusCode::BAD_REQUEST, Json(body)).into_response();
    }
    if !hostility.archive.is_empty() && segments.last() == Some(&"export") {
        return hostility.archive.clone().into_response();
    }
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = match (&method, segments.as_slice()) {
        (&Method::POST, [.., "memories", "batch"]) => {
            let operations = sent["operations"].as_array().map_or(0, Vec::len);
            json!({"data": vec![json!({"status": "created"}); operations]})
        }
        (&Method::GET, ["memory_stores", _, "changes"]) => shared.changes(),
        (&Method::GET, ["memory_stores", _, "memories"]) => shared.list(&uri, shared.memories()),
        (_, ["memory_stores", _, "memories", id]) => {
            let number = id.rsplit('_').next().and_then(|number| number.parse().ok());
            shared.memory(number.unwrap_or(FIRST), sent["content"].as_str())
        }
        (_, ["memory_stores", _, "memories"]) => shared.memory(FIRST, sent["content"].as_str()),
        (&Method::GET, _) => shared.list(&uri, vec![shared.object(&hostility.text)]),
        _ => shared.object(&hostility.text),
    };
    Json(answer).into_response()
}

impl Shared {
    /// An object of any kind, and a list of such objects.
    fn list(&self, uri: &Uri, items: Vec<Value>) -> Value {
        let is_first = !uri.query().is_some_and(|query| query.contains("page="));
        let (data, next_page) = match self.hostility.pages {
            EndlessPages::No | EndlessPages::Changes => (items, None),
            EndlessPages::Same => (items, Some("same".to_owned())),
            EndlessPages::Empty => {
                let number = self.pages.fetch_add(1, Ordering::SeqCst);
                let data = if is_first { items } else { Vec::new() };
                (data, Some(format!("page_{number}")))
            }
        };
        let mut list = self.object(&self.hostility.text);
        list["data"] = data.into();
        list["next_page"] = next_page.into();
        list
    }

    fn changes(&self) -> Value {
        let is_endless = self.hostility.pages == EndlessPages::Changes;
        let version_id = format!("memver_{:026}", 1);
        let change =
            json!({"seq": 1, "memory_id": format!("mem_{FIRST:026}"), "memory_version_id": version_id});
        let data: Vec<_> = is_endless.then_some(change).into_iter().collect();
        json!({"data": data, "next_after": "1", "has_more": is_endless, "history_removed": false})
    }

    fn memories(&self) -> Vec<Value> {
        let numbers = FIRST..FIRST + self.hostility.paths.len();
        numbers.map(|number| self.memory(number, None)).collect()
    }

    /// A memory with the content that was sent, or its own.
    fn memory(&self, number: usize, sent: Option<&str>) -> Value {
        let id = format!("mem_{number:026}");
        let mut memory = self.object(&id);
        memory["memory_id"] = id.into();
        memory["path"] = self.hostility.paths.get(number - FIRST).cloned().into();
        if let Some(sent) = sent {
            memory["content_sha256"] = ContentHash::of(sent.as_bytes()).to_string().into();
        }
        memory
    }

    fn object(&self, id: &str) -> Value {
        let text = &self.hostility.text;
        let content = format!("content {text}\n");
        let mut object = json!({
            "id": id,
            "path": format!("/{text}"),
            "content": content,
            "content_sha256": ContentHash::of(content.as_bytes()).to_string(),
            "content_size_bytes": content.len(),
            "memory_id": format!("mem_{FIRST:026}"),
            "memory_version_id": format!("memver_{:026}", 1),
            "input": {text: text},
            "metadata": {text: text},
            "created_by": {"user_id": text},
            "actor": {"user_id": text},
            "agent": {"id": text},
            "object": {"id": text},
            "content_also_in": [text],
            "resources": [{"memory_store_id": text, "mount_path": text, "access": text}],
            "expiring_next": [{"expires_at": text, "last_accessed_at": text, "path": text}],
            "memory_count": 1,
            "content_bytes": 1,
        });
        for field in TEXTS.split_whitespace() {
            object[field] = json!(text);
        }
        object
    }
}
