//! A running server whose output is checked for secrets at its end.

use std::ops::Deref;

use keepsake_testkit::RunningServer;

use super::*;

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
        assert_eq!(status.code(), Some(0), "{}", self.output());
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
        secrets::assert_none_in(&self.output(), "the server");
    }
}

impl Deref for Server {
    type Target = RunningServer;

    fn deref(&self) -> &RunningServer {
        &self.running
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_output();
        }
    }
}

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
