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
use tempfile::TempDir;

use crate::support::command::{Run, keepsake_in_terminal, keepsake_reading};
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
        Self {
            home: TempDir::new().unwrap(),
            server: deployment.start().await,
            deployment,
            tenant,
            reader,
        }
    }

    /// The variables that name the server, the key and the store.
    fn variables(&self) -> Vec<(&str, String)> {
        vec![
            ("KEEPSAKE_URL", self.server.url()),
            ("KEEPSAKE_API_KEY", self.tenant.key.clone()),
            ("KEEPSAKE_STORE", self.tenant.store_id.to_string()),
        ]
    }

    /// Runs a command in a pipe.
    async fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, &[], "").await
    }

    /// Runs a command in a pipe, with further variables and an input.
    async fn run_with(&self, arguments: &[&str], more: &[(&str, &str)], input: &str) -> Run {
        let (variables, home) = (self.variables(), self.home.path().to_string_lossy());
        let mut all: Vec<_> = variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        all.push(("XDG_CONFIG_HOME", &home));
        all.extend_from_slice(more);
        keepsake_reading(arguments, &all, input).await
    }

    /// Runs a command in a terminal of this width.
    async fn run_in_terminal(
        &self,
        arguments: &[&str],
        more: &[(&str, &str)],
        width: u16,
        input: &str,
    ) -> Run {
        let (variables, home) = (self.variables(), self.home.path().to_string_lossy());
        let mut all: Vec<_> = variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        all.push(("XDG_CONFIG_HOME", &home));
        all.extend_from_slice(more);
        keepsake_in_terminal(arguments, &all, width, input).await
    }

    /// Writes a memory.
    async fn put(&self, path: &str, content: &str) -> String {
        self.run_with(&["memory", "put", path], &[], content).await.ok()
    }
}
