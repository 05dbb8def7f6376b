//! Log lines on stderr.

use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogSettings};

/// The job scheduler tells of itself at `info` at each start; what a
/// configured filter says of it counts more.
const QUIET: &str = "tokio_cron_scheduler=warn";

/// Starts logging for the rest of the process.
///
/// The filter was checked when the configuration was read.
pub(crate) fn start(settings: &LogSettings) {
    let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{}", settings.filter));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    std::panic::set_hook(Box::new(tell_panic));
    // Fails only where logging was started before.
    let _ = match settings.format {
        LogFormat::Human => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

/// Says where something panicked and not with what: a payload may quote
/// content.
fn tell_panic(panicked: &PanicHookInfo<'_>) {
    let place = panicked
        .location()
        .map(|place| format!("{}:{}", place.file(), place.line()));
    let place = place.unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::error!(place, thread, "panicked: this is a bug");
}
