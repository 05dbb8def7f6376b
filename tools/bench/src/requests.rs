//! One operation as a request: for the server, for the floor and for ai-memory.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Uri};
use keepsake_config::Failure;
use keepsake_core::TenantId;

use super::plan::{Command, PAGE};
use super::workload::{BenchStore, Side};

/// A store with what its requests have in common.
pub(super) struct PreparedStore {
    /// `/v1/memory_stores/{id}`
    route: String,
    api_key: HeaderValue,
    /// `{tenant}/{store}` as the floor's routes take them.
    floor_key: String,
}

impl PreparedStore {
    /// # Errors
    /// [`Failure`] if the key is not a valid header value.
    pub(super) fn new(store: &BenchStore) -> Result<Self, Failure> {
        let tenant = store.tenant_id.map(TenantId::uuid).unwrap_or_default();
        Ok(Self {
            route: format!("/v1/memory_stores/{}", store.store_id),
            api_key: HeaderValue::from_str(&store.api_key).map_err(Failure::of("an API key"))?,
            floor_key: format!("{tenant}/{}", store.store_id.uuid()),
        })
    }
}

/// A command with its arguments.
pub(super) struct Operation<'a> {
    pub(super) command: Command,
    pub(super) directory: &'a str,
    /// The path of a memory, which is in the directory.
    pub(super) path: &'a str,
    /// The content of a new memory, or an edited one, as JSON without quotes.
    pub(super) content: &'a str,
    /// The texts that an edit removes and inserts.
    pub(super) edit: [&'a str; 2],
    /// Words to search, joined by `+`.
    pub(super) words: &'a str,
    /// The id that ai-memory gave to the memory.
    pub(super) peer_id: &'a str,
}

impl Operation<'_> {
    /// The request for one side.
    pub(super) fn request(
        &self,
        side: Side,
        store: &PreparedStore,
        host: &HeaderValue,
    ) -> Request<Full<Bytes>> {
        let (method, uri, body) = match side {
            Side::Server => self.for_server(&store.route),
            Side::Floor => (Method::POST, self.floor_route(&store.floor_key), String::new()),
            Side::AiMemory => self.for_ai_memory(),
        };
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        // Ids and simple names are always a valid URI.
        *request.uri_mut() = uri.parse::<Uri>().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(HOST, host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if side != Side::AiMemory {
            headers.insert("x-api-key", store.api_key.clone());
        }
        request
    }

    fn for_server(&self, route: &str) -> (Method, String, String) {
        let Self { directory, path, content, edit: [old, new], words, .. } = self;
        let body = match self.command {
            Command::View | Command::ViewUncached => {
                format!(r#"{{"command":"view","path":"/memories{path}"}}"#)
            }
            Command::ViewDirectory => format!(r#"{{"command":"view","path":"/memories{directory}"}}"#),
            Command::StrReplace => format!(
                r#"{{"command":"str_replace","path":"/memories{path}","old_str":"{old}","new_str":"{new}"}}"#
            ),
            Command::Create => {
                format!(r#"{{"command":"create","path":"/memories{path}","file_text":"{content}"}}"#)
            }
            Command::List => {
                let query = format!("path_prefix={directory}/&depth=1&limit={PAGE}");
                return (Method::GET, format!("{route}/memories?{query}"), String::new());
            }
            Command::Search => {
                return (Method::GET, format!("{route}/search?query={words}"), String::new());
            }
        };
        (Method::POST, format!("{route}/tool_calls"), body)
    }

    fn floor_route(&self, key: &str) -> String {
        let route = match self.command {
            // The floor has no search; no scenario with one uses it.
            Command::View | Command::Search => "view",
            Command::ViewUncached => "cold",
            Command::ViewDirectory => "directory",
            Command::List => "list",
            Command::StrReplace => "edit",
            Command::Create => "create",
        };
        format!("/{route}/{key}{}", self.path)
    }

    /// A memory is a row with the path as its title, in the namespace of its
    /// directory. An edit sends the whole new content: there is no other way.
    fn for_ai_memory(&self) -> (Method, String, String) {
        let Self { path, content, words, peer_id, .. } = self;
        let namespace = self.directory.trim_matches('/');
        match self.command {
            Command::View | Command::ViewUncached => {
                (Method::GET, format!("/api/v1/memories/{peer_id}"), String::new())
            }
            Command::ViewDirectory | Command::List => {
                let query = format!("namespace={namespace}&limit={PAGE}");
                (Method::GET, format!("/api/v1/memories?{query}"), String::new())
            }
            Command::Search => {
                let query = format!("q={words}&namespace={namespace}&limit=10");
                (Method::GET, format!("/api/v1/search?{query}"), String::new())
            }
            Command::StrReplace => {
                let body = format!(r#"{{"content":"{content}"}}"#);
                (Method::PUT, format!("/api/v1/memories/{peer_id}"), body)
            }
            Command::Create => {
                let body = format!(
                    r#"{{"tier":"long","namespace":"{namespace}","title":"{path}","content":"{content}"}}"#
                );
                (Method::POST, "/api/v1/memories".to_owned(), body)
            }
        }
    }
}
