//! Log lines on stderr, and spans for the collector.

use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;

use keepsake_config::{LogFormat, LogSettings};
use keepsake_telemetry::Telemetry;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

/// The job scheduler tells of itself at `info` at each start; what a
/// configured filter says of it counts more.
const QUIET: &str = "tokio_cron_scheduler=warn";

/// The MCP library logs whole messages, with content, below `warn`, and the ids that
/// clients choose for their requests at `warn`.
const LOGS_CONTENT: &str = "rmcp";

/// Starts logging for the rest of the process, and tracing where `telemetry`
/// has somewhere to take traces to.
///
/// The filter was checked when the configuration was read; it is about the log
/// alone.
pub(crate) fn start(settings: &LogSettings, telemetry: Option<&Telemetry>) {
    let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{}", settings.filter));
    let without_content = filter_fn(|metadata| {
        !metadata.target().starts_with(LOGS_CONTENT) || LevelFilter::ERROR >= *metadata.level()
    });
    // Else nobody knows which levels are ever told, and each is asked about.
    let filter = filter.and(without_content.with_max_level_hint(LevelFilter::TRACE));
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match settings.format {
        LogFormat::Human => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    std::panic::set_hook(Box::new(tell_panic));
    let registry = tracing_subscriber::registry().with(lines.with_filter(filter));
    // Fails only where logging was started before. A layer that is none would
    // have what no line tells asked about each time, instead of once.
    let _ = match telemetry.and_then(Telemetry::layer) {
        Some(spans) => registry.with(spans).try_init(),
        None => registry.try_init(),
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
