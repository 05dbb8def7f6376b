use std::fmt::Display;

use reqwest::RequestBuilder;
use reqwest::header::{HeaderMap, HeaderValue};

use super::*;

#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolResult {
    pub(crate) content: String,
    pub(crate) is_error: bool,
}

/// A client for HTTP without TLS: to read the certificates of the machine takes longer
/// than many a test.
pub(crate) fn plain_http() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

impl Client {
    pub(crate) fn new(url: &str, key: &str) -> Self {
        let http = plain_http().build().unwrap();
        Self { http, url: url.to_owned(), key: key.to_owned() }
    }

    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// A request with the credential, a key or a token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.bare(method, path);
        // Every token has a point in it, no key has.
        if self.key.contains('.') {
            request.bearer_auth(&self.key)
        } else {
            request.header("x-api-key", &self.key)
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    /// Every item of a list, page after page; the path has a query.
    pub(crate) async fn all(&self, path: &str) -> Vec<Value> {
        let (mut items, mut page) = (Vec::new(), String::new());
        loop {
            let (mut data, next) = page_of(&self.get(&format!("{path}{page}")).await);
            items.append(&mut data);
            match next {
                Some(next) => page = format!("&page={next}"),
                None => return items,
            }
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.request(Method::POST, path).json(body)).await
    }

    /// Posts, and again with the same idempotency key while the server has no time for it,
    /// as the clients of the API do. The request is carried out at most once.
    pub(crate) async fn post_patiently(&self, path: &str, body: &Value, key: &str) -> Answer {
        for _ in 0..20 {
            let request = self.request(Method::POST, path).json(body);
            let answer = send(request.header("idempotency-key", key)).await;
            if !matches!(answer.status, 503 | 504) {
                return answer;
            }
        }
        panic!("{path} was answered 503 or 504 twenty times");
    }

    /// Waits until an erasure is done; answers its receipt.
    pub(crate) async fn receipt(&self, erasure: &Value) -> Answer {
        let path = format!("/v1/erasures/{}", erasure["id"].as_str().unwrap());
        let is_done = async || ok(&self.get(&path).await)["state"] == "done";
        soon("the erasure is done", is_done).await;
        self.get(&path).await
    }

    pub(crate) async fn new_key(&self, scopes: &[&str]) -> (String, String) {
        let made = ok(&self.post("/v1/api_keys", &json!({"name": "new", "scopes": scopes})).await);
        let key = made["api_key"].as_str().unwrap();
        secrets::remember(key, "an API key");
        (key.to_owned(), format!("/v1/api_keys/{}", made["id"].as_str().unwrap()))
    }

    pub(crate) async fn revoke(&self, key_path: &str) {
        ok(&self.post(&format!("{key_path}/revoke"), &json!({})).await);
    }

    pub(crate) async fn call(&self, store_id: impl Display, body: &Value) -> Answer {
        self.post(&tool_calls(store_id), body).await
    }

    /// Posts a tool call to a tenant's store, which must be answered 200.
    pub(crate) async fn tool(&self, tenant: &Tenant, body: &Value) -> ToolResult {
        let answer = self.call(tenant.store_id, body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        answer.tool_result()
    }

    pub(crate) async fn tool_ok(&self, tenant: &Tenant, body: &Value) -> String {
        let result = self.tool(tenant, body).await;
        assert!(!result.is_error, "{body}: {}", result.content);
        result.content
    }

    pub(crate) async fn create_file(&self, tenant: &Tenant, path: &str, text: &str) {
        self.tool_ok(tenant, &json!({"command": "create", "path": path, "file_text": text})).await;
    }

    /// The lines that `view` shows of a file, without their numbers.
    pub(crate) async fn lines(&self, tenant: &Tenant, path: &str) -> Vec<String> {
        let shown = self.tool_ok(tenant, &json!({"command": "view", "path": path})).await;
        assert!(!shown.contains("\n\n[Lines "), "{path} is not shown whole");
        let numbered = shown.lines().skip(1);
        numbered.map(|line| line.split_once('\t').unwrap().1.to_owned()).collect()
    }
}

pub(crate) fn tool_calls(store_id: impl Display) -> String {
    format!("/v1/memory_stores/{store_id}/tool_calls")
}

pub(crate) async fn send(request: RequestBuilder) -> Answer {
    try_send(request).await.unwrap()
}

/// Sends a request to a server that may die meanwhile.
pub(crate) async fn try_send(request: RequestBuilder) -> reqwest::Result<Answer> {
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let content_type = headers.get("content-type").map(|value| value.to_str().unwrap());
    let text = match content_type {
        // Only the head of a stream is read.
        Some("text/event-stream") => "{}".to_owned(),
        // The files of an archive, as one text in JSON.
        Some("application/zstd") => {
            let files = zstd::decode_all(&response.bytes().await?[..]).unwrap_or_default();
            Value::from(String::from_utf8_lossy(&files)).to_string()
        }
        _ => response.text().await?,
    };
    Ok(Answer { status, headers, text })
}

#[track_caller]
pub(crate) fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json()
}

/// A page's items and its cursor; only the last page may be empty.
#[track_caller]
pub(crate) fn page_of(answer: &Answer) -> (Vec<Value>, Option<String>) {
    let body = ok(answer);
    let is_common = |field: &&String| !field.starts_with("complete_") && *field != "meaning";
    let fields = body.as_object().unwrap().keys().filter(is_common);
    assert_eq!(fields.collect::<Vec<_>>(), ["data", "next_page"]);
    let data = body["data"].as_array().unwrap().clone();
    let next = body["next_page"].as_str().map(str::to_owned);
    match &next {
        Some(next) => assert!(next.starts_with("page_") && !data.is_empty(), "{body}"),
        None => assert!(body["next_page"].is_null()),
    }
    (data, next)
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("not JSON ({error}), status {}: {}", self.status, self.text))
    }

    /// Status, headers and text, but for what differs from request to request.
    pub(crate) fn lasting(&self) -> (u16, Vec<(String, String)>, String) {
        let headers = self.headers.iter().filter(|(name, _)| *name != "request-id" && *name != "date");
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut headers: Vec<_> = headers.map(|(name, value)| (name.to_string(), text(value))).collect();
        headers.sort();
        let text = self.text.replace(self.header("request-id"), "req_");
        (self.status, headers, text)
    }

    /// A header's value; empty if the header is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body, which must be exactly a `tool_result` block.
    pub(crate) fn tool_result(&self) -> ToolResult {
        let block = self.json();
        let fields = block.as_object().unwrap();
        let known = ["type", "tool_use_id", "content", "is_error"];
        assert!(fields.keys().all(|field| known.contains(&field.as_str())), "{block}");
        assert_eq!(block["type"], "tool_result", "{block}");
        let content = block["content"].as_str().unwrap().to_owned();
        ToolResult { content, is_error: block["is_error"].as_bool().unwrap() }
    }
}
