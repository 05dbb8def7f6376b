//! A real server process that a test starts, kills and starts again.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::run;

/// The placeholder of the port in a configuration.
pub const PORT_PLACEHOLDER: &str = "{port}";
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
    /// `config` is TOML, in which [`PORT_PLACEHOLDER`] is replaced by the port.
    /// No `KEEPSAKE_*` variable of the test reaches the server, and it has its own
    /// folder for the contexts of its user.
    ///
    /// # Panics
    /// When there is no free port or no place for the file.
    #[must_use]
    pub fn new(binary: &Path, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("no temporary folder");
        let port = free_port();
        let config_file = folder.path().join("keepsake.toml");
        std::fs::write(&config_file, config.replace(PORT_PLACEHOLDER, &port.to_string()))
            .expect("the config file cannot be written");
        let config_file = config_file.to_string_lossy().into_owned();
        Self {
            binary: binary.to_owned(),
            arguments: vec!["serve".to_owned(), "--config".to_owned(), config_file],
            environment: Vec::new(),
            port,
            folder,
        }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces all arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
        self
    }

    /// The port that every start listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file that holds the config text.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join("keepsake.toml")
    }

    /// Starts the server and waits until `GET /livez` answers 200.
    ///
    /// # Panics
    /// When it ends or stays silent for a minute; its output is in the message.
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
    ///
    /// # Panics
    /// When the binary cannot be run.
    #[must_use]
    pub fn spawn(&self) -> RunningServer {
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEEPSAKE_") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(&self.arguments)
            .env("XDG_CONFIG_HOME", self.folder.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
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
pub struct RunningServer {
    child: Child,
    port: u16,
    output: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl RunningServer {
    /// Where it listens, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it wrote so far to stdout and stderr.
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills it at once, as a crash would, and waits until it is gone.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub async fn kill9(&mut self) -> ExitStatus {
        self.child.start_kill().expect("the server cannot be killed");
        self.wait().await
    }

    /// Asks it to end with SIGTERM; see [`Self::wait`].
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub async fn terminate(&mut self) {
        let Some(pid) = self.pid() else { return };
        // The shell's own `kill`: the program is not on every machine.
        let status = Command::new("sh").arg("-c").arg(format!("kill -TERM {pid}")).status().await;
        assert!(status.is_ok_and(|status| status.success()), "SIGTERM cannot be sent to {pid}");
    }

    /// Waits until it has ended and all its output is collected.
    ///
    /// # Panics
    /// When it does not end within a minute.
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

impl fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningServer")
            .field("pid", &self.pid())
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// The product's program, in the build folder that this program is in.
///
/// # Panics
/// When the product was not built there.
#[must_use]
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
///
/// # Panics
/// When there is none.
#[must_use]
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
        output.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Serves `/livez` and ends on SIGTERM; the config is its only output.
    const SERVER: &str = r#"
import http.server, os, signal, sys
print(open(sys.argv[1]).read(), os.environ.get("KEEPSAKE_GIVEN"), flush=True)
print("inherited:", sorted(name for name in os.environ if name.startswith("KEEPSAKE_TEST_")), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
class Live(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/livez" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    protocol_version = "HTTP/1.1"
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Live).serve_forever()
"#;

    fn python_server() -> ServerCommand {
        let command =
            ServerCommand::new(Path::new("python3"), "listen = {port}").env("KEEPSAKE_GIVEN", "given");
        let (config_file, port) = (command.config_file(), command.port().to_string());
        command.arguments(&["-c", SERVER, &config_file.to_string_lossy(), &port])
    }

    #[tokio::test]
    async fn server_is_killed_restarted_and_terminated() {
        let command = python_server();
        let mut server = command.start().await;
        assert_eq!(server.url(), format!("http://127.0.0.1:{}", command.port()));
        assert_eq!(server.kill9().await.signal(), Some(9));

        let mut server = command.start().await;
        server.terminate().await;
        assert_eq!(server.wait().await.code(), Some(7));
        assert!(server.output().contains(&format!("listen = {} given", command.port())));
        assert!(server.output().contains("inherited: []"));
    }

    #[tokio::test]
    #[should_panic(expected = "no such luck")]
    async fn server_that_cannot_start_shows_its_output() {
        let command =
            ServerCommand::new(Path::new("sh"), "").arguments(&["-c", "echo no such luck >&2; exit 1"]);
        command.start().await;
    }
}
