//! The measured child processes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use keepsake_config::Failure;
use tokio::process::{Child, Command};

use super::connection::Connection;

/// The probe of the server and the floor.
pub(super) const LIVEZ: &str = "/livez";
const START_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The unit of CPU time in `/proc`; the same on every Linux.
const TICK: Duration = Duration::from_millis(10);
/// The length of the output that is shown of a failed process.
const SHOWN_OUTPUT_BYTES: usize = 4_000;

/// A child that serves HTTP; killed when dropped.
pub(super) struct Process {
    child: Child,
    name: &'static str,
    address: SocketAddr,
    probe: &'static str,
    output: PathBuf,
}

impl Process {
    /// Runs a binary and waits until it answers `GET {probe}`.
    ///
    /// # Errors
    /// [`Failure`] with the end of the child's output.
    pub(super) async fn start(
        binary: &Path,
        name: &'static str,
        (address, probe): (SocketAddr, &'static str),
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self, Failure> {
        let failed = || Failure::of(format!("the {name} ({}) cannot be started", binary.display()));
        let output = std::env::temp_dir().join(format!("keepsake-bench-{}-{name}.log", std::process::id()));
        let log = std::fs::File::create(&output).map_err(failed())?;
        let log_too = log.try_clone().map_err(failed())?;
        let mut command = Command::new(binary);
        prepare(&mut command);
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed())?;
        let mut process = Self { child, name, address, probe, output };
        match tokio::time::timeout(START_TIMEOUT, process.until_live()).await {
            Ok(Ok(())) => Ok(process),
            Ok(Err(ended)) => Err(ended),
            Err(_) => Err(process.failure("does not answer")),
        }
    }

    async fn until_live(&mut self) -> Result<(), Failure> {
        loop {
            self.check()?;
            if is_live(self.address, self.probe).await {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills the process and waits for its end, which releases its locks.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be killed.
    pub(super) async fn end(mut self) -> Result<(), Failure> {
        let ended = self.child.kill().await;
        ended.map_err(Failure::of("a process cannot be ended"))
    }

    /// Checks that the process is still running.
    ///
    /// # Errors
    /// [`Failure`] with the end of the child's output.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failure(&format!("ended ({status})"))),
            Err(error) => Err(self.failure(&format!("cannot be watched: {error}"))),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        let output = std::fs::read(&self.output).unwrap_or_default();
        let end = &output[output.len().saturating_sub(SHOWN_OUTPUT_BYTES)..];
        Failure::new(format!("the {} {what}; its output ends:\n{}", self.name, String::from_utf8_lossy(end)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the temporary folder.
        let _ = std::fs::remove_file(&self.output);
    }
}

async fn is_live(address: SocketAddr, probe: &str) -> bool {
    let Ok(mut connection) = Connection::open(address).await else {
        return false;
    };
    let Ok(request) = Request::get(probe).header("host", address.to_string()).body(Full::new(Bytes::new()))
    else {
        return false;
    };
    connection.call(request).await.is_ok_and(|(status, _)| status == StatusCode::OK)
}

/// A loopback address with a free port.
///
/// # Errors
/// [`Failure`] if there is none.
pub(super) fn free_address() -> Result<SocketAddr, Failure> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(Failure::of("there is no free port"))
}

/// What `/proc` says about a process.
pub(super) struct Stat {
    pub(super) parent: u32,
    /// CPU time of all its threads.
    pub(super) own: Duration,
    /// CPU time of children that it waited for.
    pub(super) ended_children: Duration,
}

/// Reads `/proc/{pid}/stat`; `None` if there is no such process or no `/proc`.
pub(super) fn stat(pid: u32) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may contain anything and ends
    // with the last parenthesis. The parent is field 4; the times of user and system
    // are fields 14 and 15, those of ended children 16 and 17.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<_> = fields.split(' ').collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u32>().ok();
    Some(Stat {
        parent: ticks(4)?,
        own: TICK * (ticks(14)? + ticks(15)?),
        ended_children: TICK * (ticks(16)? + ticks(17)?),
    })
}

/// The CPU time of a process; `None` without `/proc`.
pub(super) fn cpu_time(pid: u32) -> Option<Duration> {
    Some(stat(pid)?.own)
}

/// The memory of a process in bytes, without the pages of files, which the system can drop
/// when memory is short; `None` on a system without `/proc`.
pub(super) fn anonymous_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1_024)
}
