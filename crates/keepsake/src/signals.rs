//! SIGINT and SIGTERM: the first asks the server to end, the second ends it.

use std::io;

use keepsake_server::Lifecycle;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const SIGXFSZ: i32 = 25;
/// What shells expect of a process that a signal ended: 128 and its number.
const SIGNAL_EXIT_CODE: i32 = 128;

/// A token that the first signal cancels; the second one exits at once.
///
/// # Errors
/// What the operating system said to catching signals.
pub(crate) fn shutdown_token() -> io::Result<CancellationToken> {
    lifecycle().map(|lifecycle| lifecycle.draining)
}

/// What the first signal begins; the second one exits at once.
///
/// SIGTERM, as orchestrators send it, leaves clients the time to go elsewhere;
/// SIGINT is a person's, who waits.
///
/// # Errors
/// What the operating system said to catching signals.
pub(crate) fn lifecycle() -> io::Result<Lifecycle> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Caught, so that a write past the limit of a file's size (`ulimit -f`) fails
    // like one to a full disk and does not end the process.
    let _ = signal(SignalKind::from_raw(SIGXFSZ))?;
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
        tracing::info!("keepsake ends, after what is under way; a second signal ends it at once");
        begun.draining.cancel();
        if first == SignalKind::interrupt() {
            begun.stopping.cancel();
        }
        let second = next().await;
        std::process::exit(SIGNAL_EXIT_CODE + second.as_raw_value());
    });
    Ok(lifecycle)
}
