//! A real server process that a test starts, kills and starts again.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::{locked, run};

const START_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const FIRST_PORT: u32 = 15_000;
const PORTS: u32 = 17_000;

/// How to start a server; each start of the same command is a restart.
#[derive(Debug)]
pub struct ServerCommand {
    binary: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    port: u16,
    folder: TempDir,
}

impl ServerCommand {
    /// Prepares `{binary} serve --config {file}` on a free loopback port.
    ///
    /// `config` is TOML, in which `{port}` is replaced by the port.
    /// No `KEEPSAKE_*` variable of the test reaches the server, and it has its own
    /// folder for the contexts of its user.
    pub fn new(binary: &Path, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("no temporary folder");
        let port = free_port();
        let config_file = folder.path().join("keepsake.toml");
        let written = std::fs::write(&config_file, config.replace("{port}", &port.to_string()));
        written.expect("the config file cannot be written");
        let config_file = config_file.to_string_lossy().into_owned();
        Self {
            binary: binary.to_owned(),
            arguments: vec!["serve".to_owned(), "--config".to_owned(), config_file],
            environment: Vec::new(),
            port,
            folder,
        }
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
        self
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join("keepsake.toml")
    }

    /// Starts the server and waits until `GET /livez` answers 200.
    pub async fn start(&self) -> RunningServer {
        let mut server = self.spawn();
        let is_live = tokio::time::timeout(START_TIMEOUT, async {
            loop {
                if let Ok(Some(status)) = server.child.try_wait() {
                    server.finish_output().await;
                    panic!("the server ended at its start ({status}):\n{}", server.output());
                }
                if answers_livez(self.port).await.unwrap_or(false) {
                    return;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        let is_live = is_live.await.is_ok();
        assert!(is_live, "the server did not answer GET /livez in time:\n{}", server.output());
        server
    }

    /// Starts the process and does not wait, for servers that must refuse to.
    pub fn spawn(&self) -> RunningServer {
        let mut child = bare_command(&self.binary)
            .args(&self.arguments)
            .env("XDG_CONFIG_HOME", self.folder.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("could not run {}: {error}", self.binary.display()));
        let output = Arc::default();
        let readers = [
            child.stdout.take().map(|stdout| tokio::spawn(collect(stdout, Arc::clone(&output), None))),
            child
                .stderr
                .take()
                .map(|stderr| tokio::spawn(collect(stderr, Arc::clone(&output), run::new_log()))),
        ];
        let readers = readers.into_iter().flatten().collect();
        RunningServer { child, port: self.port, output, readers }
    }
}

/// A server process; killed when dropped.
#[derive(Debug)]
pub struct RunningServer {
    child: Child,
    port: u16,
    output: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl RunningServer {
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub fn output(&self) -> String {
        locked(&self.output).clone()
    }

    /// Kills it at once, as a crash would, and waits until it is gone.
    pub async fn kill9(&mut self) -> ExitStatus {
        self.child.start_kill().expect("the server cannot be killed");
        self.wait().await
    }

    /// Asks it to end with SIGTERM; see [`Self::wait`].
    pub async fn terminate(&mut self) {
        self.signal("TERM").await;
    }

    /// Sends a signal, if it still runs.
    pub async fn signal(&mut self, name: &str) {
        if let Some(pid) = self.pid() {
            signal(pid, name).await;
        }
    }

    /// Waits until it has ended and all its output is collected.
    pub async fn wait(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        let Ok(status) = ended else {
            panic!("the server did not end in time:\n{}", self.output());
        };
        self.finish_output().await;
        status.expect("the server's exit cannot be awaited")
    }

    async fn finish_output(&mut self) {
        for reader in self.readers.drain(..) {
            let _ = reader.await;
        }
    }
}

pub async fn signal(pid: u32, name: &str) {
    // The shell's own `kill`: the program is not on every machine.
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().await;
    assert!(sent.is_ok_and(|status| status.success()), "SIG{name} cannot be sent to {pid}");
}

/// A program without stdin and without the test's `KEEPSAKE_*` variables, killed when dropped.
pub fn bare_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KEEPSAKE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The product's program, in the build folder that this program is in.
pub fn built_program() -> PathBuf {
    let this = std::env::current_exe().expect("this program cannot be found");
    let folder = this.parent().and_then(Path::parent).expect("a test is in a build folder");
    let program = folder.join("keepsake");
    assert!(program.is_file(), "{} is missing: build the product first", program.display());
    program
}

/// A free loopback port outside the system's range for outgoing connections.
///
/// A port of that range could be taken between this call and the start of a
/// server. A process returns no port twice until all ports were used.
pub fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(uuid::Uuid::new_v4().as_fields().0 % PORTS));
    for _ in 0..PORTS {
        let offset = next.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = u16::try_from(FIRST_PORT + offset).expect("ports are below 65536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// Collects what a process writes; its log is kept for the whole run too.
async fn collect(stream: impl AsyncRead + Unpin, output: Arc<Mutex<String>>, mut log: Option<File>) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while matches!(stream.read_until(b'\n', &mut line).await, Ok(length) if length > 0) {
        if let Some(log) = &mut log {
            log.write_all(&line).expect("a log cannot be kept in the run's folder");
        }
        let text = String::from_utf8_lossy(&line);
        locked(&output).push_str(&text);
        line.clear();
    }
}

async fn answers_livez(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    let request = format!("GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}
