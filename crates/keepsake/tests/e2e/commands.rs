//! The commands for people, in a pipe and in a terminal.

mod archives;
mod contexts;
mod copy;
mod doctor;
mod each;
mod editing;
mod hostile_server;
mod manual;
mod memories;
mod output;
mod stores;
mod sync;

use std::fs;

use crate::prelude::*;

/// Everything below a folder by its path: files with their content, directories and links without.
pub(crate) fn everything(folder: impl AsRef<Path>) -> BTreeMap<String, Option<Vec<u8>>> {
    let root = folder.as_ref();
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(current) = folders.pop() {
        for item in current.read_dir().into_iter().flatten() {
            let path = item.unwrap().path();
            let content = fs::read(&path).ok().filter(|_| !path.is_symlink());
            found.insert(path.strip_prefix(root).unwrap().display().to_string(), content);
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            }
        }
    }
    found
}

fn files(folder: impl AsRef<Path>) -> BTreeMap<String, Vec<u8>> {
    let found = everything(folder).into_iter();
    found.filter_map(|(name, content)| Some((name, content?))).collect()
}

struct Person {
    home: TempDir,
    /// Contains the server's data.
    deployment: Deployment,
    tenant: Tenant,
    server: Server,
    reader: String,
}

impl Person {
    async fn new() -> Self {
        Self::with(Pair::Sqlite, &ServerConfig::default()).await
    }

    async fn with(pair: Pair, config: &ServerConfig) -> Self {
        let (deployment, tenant, server, client) = started_with(pair, config).await;
        let (reader, _) = client.new_key(&["memory:read"]).await;
        Self { home: TempDir::new().unwrap(), server, deployment, tenant, reader }
    }

    fn client(&self) -> Client {
        self.server.client(&self.tenant)
    }

    fn store(&self) -> Store {
        Store::of(&self.client(), &self.tenant)
    }

    async fn listed(&self, list: &str) -> Vec<Value> {
        let store = self.store();
        store.client.all(&format!("{}/{list}&limit=20", store.path)).await
    }

    async fn texts(&self) -> BTreeMap<String, String> {
        let memories = self.listed("memories?view=full").await;
        let of = |memory: &Value| ["path", "content"].map(|field| text(&memory[field]).to_owned());
        memories.iter().map(of).map(|[path, content]| (path, content)).collect()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        self.server.variables(&self.tenant, self.home.path())
    }

    async fn line(&self, line: &str) -> Run {
        self.line_with(line, &[], "").await
    }

    async fn ok(&self, line: &str) -> String {
        self.line(line).await.ok()
    }

    async fn json(&self, line: &str) -> Value {
        self.line(line).await.json()
    }

    async fn ends(&self, line: &str, code: i32, cause: &str) {
        self.line(line).await.ends(code, cause);
    }

    async fn line_with(&self, line: &str, more: &[(&str, &str)], input: &str) -> Run {
        let variables = self.variables();
        let variables = [borrowed(&variables).as_slice(), more].concat();
        keepsake_reading(&words(line), &variables, input).await
    }

    async fn run_in_terminal(&self, line: &str, more: &[(&str, &str)], width: u16, input: &str) -> Run {
        let variables = self.variables();
        let variables = [borrowed(&variables).as_slice(), more].concat();
        keepsake_in_terminal(&words(line), &variables, width, input).await
    }

    async fn put(&self, path: &str, content: &str) -> String {
        self.line_with(&format!("memory put {path}"), &[], content).await.ok()
    }

    async fn session(&self, access: &str) -> Value {
        let store_id = self.tenant.store_id;
        let store = json!({"type": "memory_store", "memory_store_id": store_id, "access": access});
        let mut new = json!({"agent": "agent", "environment_id": "env", "resources": [store]});
        new["title"] = "Ticket ZD-48502".into();
        self.client().post("/v1/sessions", &new).await.json()
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }
}
