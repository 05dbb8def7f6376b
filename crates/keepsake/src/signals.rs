//! SIGINT and SIGTERM: the first starts a graceful shutdown, the second exits.

use std::time::Duration;

use keepsake_config::{Failure, cli::Result};
use keepsake_server::Lifecycle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long the last log lines may take after a second signal.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);
const SIGXFSZ: i32 = 25;
/// Added to a signal's number for the exit code, as shells do.
const SIGNAL_EXIT_CODE: i32 = 128;

/// The signals that end a command which has something to save first.
#[derive(Debug)]
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl EndSignals {
    /// From now on, these signals do not end the process by themselves.
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self {
            interrupt: caught(SignalKind::interrupt())?,
            terminate: caught(SignalKind::terminate())?,
            hangup: caught(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        }
    }

    /// Waits for `work`; a signal ends it with [`interrupted`].
    pub(crate) async fn or_end<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            done = work => done,
            _ = self.next() => Err(interrupted()),
        }
    }
}

fn caught(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(Failure::of("signals cannot be caught"))
}

pub(crate) fn interrupted() -> Failure {
    Failure::new("interrupted")
}

/// A token that the first signal cancels; the second signal exits immediately.
pub(crate) fn shutdown_token() -> Result<CancellationToken> {
    lifecycle().map(|lifecycle| lifecycle.draining)
}

/// Waits for `work`, or for the first signal.
pub(crate) async fn or_end<T>(
    ending: &CancellationToken,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = ending.cancelled() => Err(Failure::new("interrupted: the next run goes on from here")),
    }
}

/// The lifecycle that the first signal ends; the second signal exits immediately.
///
/// SIGTERM comes from an orchestrator: the server drains first, so that load
/// balancers notice. SIGINT comes from a person who waits: it stops without
/// draining.
pub(crate) fn lifecycle() -> Result<Lifecycle> {
    let mut interrupt = caught(SignalKind::interrupt())?;
    let mut terminate = caught(SignalKind::terminate())?;
    // Caught, so that a write beyond the file size limit (`ulimit -f`) fails like
    // one to a full disk instead of ending the process.
    let _ = caught(SignalKind::from_raw(SIGXFSZ))?;
    let lifecycle = Lifecycle::default();
    let begun = lifecycle.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
            }
        };
        let first = next().await;
        tracing::info!("keepsake shuts down after running requests; a second signal exits immediately");
        begun.draining.cancel();
        if first == SignalKind::interrupt() {
            begun.stopping.cancel();
        }
        let second = next().await;
        // The write may block if stderr is a pipe without a reader.
        let flush = tokio::task::spawn_blocking(crate::logs::flush);
        let _ = tokio::time::timeout(FLUSH_LIMIT, flush).await;
        std::process::exit(SIGNAL_EXIT_CODE + second.as_raw_value());
    });
    Ok(lifecycle)
}
