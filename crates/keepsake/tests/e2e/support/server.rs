//! A running server whose output is checked for secrets at its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use keepsake_testkit::{RunningServer, ServerCommand};
use tokio::process::Command;

use super::command::{Run, keepsake, words};
use super::deployment::ServerConfig;
use super::{Client, Deployment, Pair, Tenant, secrets};

/// A server process and the command that starts it again.
#[derive(Debug)]
pub(crate) struct Server {
    command: ServerCommand,
    running: RunningServer,
}

impl Server {
    pub(crate) async fn start(command: ServerCommand) -> Self {
        let running = command.start().await;
        Self { command, running }
    }

    /// Where it listens, without a slash at the end.
    pub(crate) fn url(&self) -> String {
        self.running.url()
    }

    pub(crate) fn port(&self) -> u16 {
        self.running.port()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.pid()
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.command.config_file()
    }

    pub(crate) fn client(&self, tenant: &Tenant) -> Client {
        Client::new(&self.url(), &tenant.key)
    }

    pub(crate) async fn kill9(&mut self) {
        self.running.kill9().await;
        self.check_output();
    }

    pub(crate) async fn restart(&mut self) {
        self.running = self.command.start().await;
    }

    /// Ends it as an operator would, and waits.
    pub(crate) async fn end(&mut self) {
        self.ask_to_end().await;
        self.ended().await;
    }

    pub(crate) async fn ask_to_end(&mut self) {
        self.running.terminate().await;
    }

    /// Waits for the end of the process, which must be a success.
    pub(crate) async fn ended(&mut self) {
        let status = self.running.wait().await;
        assert_eq!(status.code(), Some(0), "{}", self.running.output());
    }

    pub(crate) fn output(&self) -> String {
        self.running.output()
    }

    /// The variables with which a tenant's commands find it and their home folder.
    pub(crate) fn variables(&self, tenant: &Tenant, home: &Path) -> Vec<(&'static str, String)> {
        vec![
            ("KEEPSAKE_URL", self.url()),
            ("KEEPSAKE_API_KEY", tenant.key.clone()),
            ("KEEPSAKE_STORE", tenant.store_id.to_string()),
            ("XDG_CONFIG_HOME", home.display().to_string()),
        ]
    }

    /// Runs a command that is configured as the server is.
    pub(crate) async fn beside(&self, line: &str) -> Run {
        let line = format!("{line} --config {}", self.config_file().display());
        keepsake(&words(&line)).await
    }

    fn check_output(&self) {
        secrets::assert_none_in(&self.running.output(), "the server");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_output();
        }
    }
}

/// A new deployment with a tenant, a server on it, and a client with the tenant's key.
pub(crate) async fn started(pair: Pair) -> (Deployment, Tenant, Server, Client) {
    started_with(pair, &ServerConfig::default()).await
}

pub(crate) async fn started_with(pair: Pair, config: &ServerConfig) -> (Deployment, Tenant, Server, Client) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start_with(config).await;
    let client = server.client(&tenant);
    (deployment, tenant, server, client)
}

/// Sends a process a signal by its name, without `SIG`.
pub(crate) async fn signal(pid: u32, name: &str) {
    let status =
        Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).stdin(Stdio::null()).status().await;
    assert!(status.is_ok_and(|status| status.success()), "SIG{name} cannot be sent to {pid}");
}
