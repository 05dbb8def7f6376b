//! The commands for people, in a pipe and in a terminal.

mod archives;
mod contexts;
mod each;
mod editing;
mod hostile_server;
mod manual;
mod memories;
mod output;
mod stores;
mod sync;

use keepsake_index::Scope;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::command::{Run, borrowed, keepsake_in_terminal, keepsake_reading, words};
use crate::support::{Deployment, Pair, Server, Tenant};

/// A person with a home folder, a server and a key for it.
struct Person {
    home: TempDir,
    /// Contains the server's data.
    deployment: Deployment,
    tenant: Tenant,
    server: Server,
    /// A key that may only read.
    reader: String,
}

impl Person {
    async fn new() -> Self {
        Self::on(Pair::Sqlite).await
    }

    /// The same with a server on this pair.
    async fn on(pair: Pair) -> Self {
        let deployment = Deployment::new(pair).await;
        let provision = deployment.provision().await;
        let tenant = provision.tenant(<_>::default()).await;
        let reader = provision.key(tenant.id, &[Scope::MemoryRead], None).await;
        provision.close().await;
        Self { home: TempDir::new().unwrap(), server: deployment.start().await, deployment, tenant, reader }
    }

    /// The variables that name the server, the key, the store and the home folder.
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("KEEPSAKE_URL", self.server.url()),
            ("KEEPSAKE_API_KEY", self.tenant.key.clone()),
            ("KEEPSAKE_STORE", self.tenant.store_id.to_string()),
            ("XDG_CONFIG_HOME", self.home.path().display().to_string()),
        ]
    }

    /// Runs a command in a pipe.
    async fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, &[], "").await
    }

    /// Runs the words of a line.
    async fn line(&self, line: &str) -> Run {
        self.run(&words(line)).await
    }

    /// What a line prints, which must succeed.
    async fn ok(&self, line: &str) -> String {
        self.line(line).await.ok()
    }

    async fn json(&self, line: &str) -> Value {
        self.line(line).await.json()
    }

    /// Runs a line that must end with this code and tell this.
    async fn ends(&self, line: &str, code: i32, cause: &str) {
        self.line(line).await.ends(code, cause);
    }

    /// Runs a command in a pipe, with further variables and an input.
    async fn run_with(&self, arguments: &[&str], more: &[(&str, &str)], input: &str) -> Run {
        let variables = self.variables();
        let variables = [borrowed(&variables).as_slice(), more].concat();
        keepsake_reading(arguments, &variables, input).await
    }

    /// Runs a line in a terminal of this width.
    async fn run_in_terminal(&self, line: &str, more: &[(&str, &str)], width: u16, input: &str) -> Run {
        let variables = self.variables();
        let variables = [borrowed(&variables).as_slice(), more].concat();
        keepsake_in_terminal(&words(line), &variables, width, input).await
    }

    /// Writes a memory.
    async fn put(&self, path: &str, content: &str) -> String {
        self.run_with(&["memory", "put", path], &[], content).await.ok()
    }
}
