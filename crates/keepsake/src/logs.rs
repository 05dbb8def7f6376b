//! Log lines on stderr and spans for the collector.

mod lines;

use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;

use keepsake_config::{LogFormat, LogSettings};
use keepsake_telemetry::Telemetry;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

pub(crate) use lines::flush;

/// Hides the messages of the job scheduler at each start; a configured filter
/// can override it.
const QUIET_SCHEDULER: &str = "tokio_cron_scheduler=warn";

/// The MCP library, of which only errors are logged: below `warn` it logs whole
/// messages with content, and at `warn` the request ids of clients.
const MCP_LIBRARY: &str = "rmcp";

/// Starts logging for the rest of the process, and tracing if `telemetry` has a
/// collector.
///
/// The filter was checked when the configuration was read. It applies only to
/// the log.
pub(crate) fn start(settings: &LogSettings, telemetry: Option<&Telemetry>) {
    let filter = EnvFilter::builder().parse_lossy(format!("{QUIET_SCHEDULER},{}", settings.filter));
    let without_content = filter_fn(|metadata| {
        !metadata.target().starts_with(MCP_LIBRARY) || LevelFilter::ERROR >= *metadata.level()
    });
    // Without a hint, `tracing` evaluates the filter for events of every level.
    let filter = filter.and(without_content.with_max_level_hint(LevelFilter::TRACE));
    let lines = fmt::layer().with_writer(lines::start()).with_ansi(io::stderr().is_terminal());
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match settings.format {
        LogFormat::Human => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    std::panic::set_hook(Box::new(log_panic));
    let registry = tracing_subscriber::registry().with(lines.with_filter(filter));
    // Fails only if logging was started before. An empty layer would keep `tracing` from
    // caching which events are disabled, so there is no layer without a collector.
    let _ = match telemetry.and_then(Telemetry::layer) {
        Some(spans) => registry.with(spans).try_init(),
        None => registry.try_init(),
    };
}

/// Logs the place of a panic without its message, which may quote content.
fn log_panic(panicked: &PanicHookInfo<'_>) {
    let place = panicked.location().map(|place| format!("{}:{}", place.file(), place.line()));
    let place = place.unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::error!(place, thread, "panicked: this is a bug");
}
