//! `keepsake serve`: from a configuration to a running server, and its end.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use keepsake_blobs::{BlobError, BlobStore};
use keepsake_config::{Failure, Merged, OperatorSettings, Role, Settings};
use keepsake_engine::jobs::Runner;
use keepsake_engine::{Clock, Engine, IdSource, RandomIds, SystemClock};
use keepsake_server::{Lifecycle, OperatorOptions, ServerOptions};
use keepsake_telemetry::{Metrics, Telemetry, TelemetryOptions};
use tokio::net::TcpListener;

use crate::backends::{self, Backends};
use crate::cli::ServeArgs;
use crate::data_dir;
use crate::dev;
use crate::{logs, signals};

/// How long the last metrics and the last spans may take on their way, each.
const LAST_EXPORT: Duration = Duration::from_millis(500);
/// How long the index may take to close.
const LAST_CLOSE: Duration = Duration::from_millis(500);
/// How long the process lives beyond the shutdown deadline, at most: time for the
/// last access times ([`keepsake_engine::LAST_WRITES`]), metrics and spans.
const LAST_STEPS: Duration = Duration::from_secs(4);
/// What the process ends with where something did not end in time.
const LATE_EXIT_CODE: i32 = 1;

/// Serves until a signal asks it to end.
///
/// # Errors
/// [`Failure`] when it cannot start, or its listener broke.
pub(crate) async fn run(args: ServeArgs) -> Result<(), Failure> {
    let lifecycle = signals::lifecycle().map_err(Failure::of("signals cannot be caught"))?;
    let mut sources = args.sources.into_sources();
    sources.listen = args.listen;
    sources.role = args.role;
    if args.dev && sources.data_dir.is_none() {
        sources.data_dir = Some(data_dir::default_folder(|name| std::env::var_os(name))?);
    }
    let folder = sources.data_dir.clone();
    let merged = sources.merge();
    let settings = merged.settings()?;
    let ending = Ending::of(&lifecycle, settings.server.shutdown_deadline);
    tokio::spawn(stop_after(lifecycle.clone(), drain(&settings)));
    let telemetry = start_telemetry(&settings)?;
    logs::start(&settings.log, Some(&telemetry));
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    let opened = tokio::select! {
        opened = open(&merged, &settings, args.migrate, telemetry.metrics()) => opened?,
        // A database that does not answer must not keep the process from ending.
        () = lifecycle.draining.cancelled() => return Ok(()),
    };
    if !settings.vault.is_locked() && !args.dev {
        tracing::warn!(
            "secrets.master_key is not set: the keys that sign tokens and cursors are in the index as they are, \
             and whoever reads it can sign"
        );
    }
    let engine = opened.measured_engine(&settings, telemetry.metrics().clone());
    let serving = Serving {
        engine: &engine,
        settings: &settings,
        telemetry: &telemetry,
        lifecycle,
        ending: &ending,
    };
    let dev_folder = folder.filter(|_| args.dev);
    let served = serving.run(&opened, dev_folder.as_deref()).await;
    end(&engine, &opened, ending.left()).await;
    end_telemetry(telemetry).await;
    served
}

fn start_telemetry(settings: &Settings) -> Result<Telemetry, Failure> {
    let now = SystemClock.now();
    let options = TelemetryOptions {
        service_name: settings.telemetry.service_name.clone(),
        service_version: env!("CARGO_PKG_VERSION"),
        instance_id: RandomIds.uuid(now).to_string(),
        resource_attributes: settings.telemetry.resource_attributes.clone(),
        otlp: settings.telemetry.otlp.clone(),
    };
    let telemetry = Telemetry::start(&options).map_err(Failure::of("telemetry.otlp_endpoint"))?;
    let since_1970 = Duration::from_micros(u64::try_from(now.as_micros()).unwrap_or(0));
    telemetry.metrics().process_started(since_1970.as_secs_f64());
    Ok(telemetry)
}

async fn open(
    merged: &Merged,
    settings: &Settings,
    migrate: bool,
    metrics: &Metrics,
) -> Result<Backends, Failure> {
    if migrate {
        backends::migrate(&merged.migration()?).await?;
    }
    Backends::open_measured(settings, metrics).await
}

/// What serving takes, from the first request to the last.
struct Serving<'a> {
    engine: &'a Engine,
    settings: &'a Settings,
    telemetry: &'a Telemetry,
    lifecycle: Lifecycle,
    ending: &'a Ending,
}

impl Serving<'_> {
    /// Does what the role asks until it is to end.
    async fn run(&self, backends: &Backends, dev_folder: Option<&Path>) -> Result<(), Failure> {
        let (engine, settings) = (self.engine, self.settings);
        engine
            .prepare_secrets()
            .await
            .map_err(Failure::of("the server's secrets (secrets.master_key)"))?;
        let listener = match settings.role {
            Role::All | Role::Gateway => Some(listen("server.listen", &settings.server.listen).await?),
            Role::Worker => None,
        };
        let operator = match &settings.operator {
            Some(operator) => Some((listen("operator.listen", &operator.listen).await?, operator)),
            None => None,
        };
        if let (Some(folder), Some((_, address))) = (dev_folder, &listener) {
            dev::introduce(engine, backends, folder, &base_url(*address)).await?;
        }
        let is_worker = settings.role != Role::Gateway;
        let runner = Runner::start(engine, is_worker)
            .await
            .map_err(Failure::of("the scheduled jobs cannot be started"))?;
        tokio::spawn(warn_of_blobs(Arc::clone(&backends.blobs)));
        let served = tokio::try_join!(self.serve_public(listener), self.serve_operator(operator));
        runner.stop(self.ending.left()).await;
        served.map(|_| ())
    }

    fn options(&self) -> ServerOptions {
        let server = &self.settings.server;
        ServerOptions {
            request_deadline: server.request_deadline,
            shutdown_deadline: server.shutdown_deadline,
            max_requests_in_flight: server.max_requests_in_flight,
            max_request_memory_bytes: server.max_request_memory_bytes,
            max_connections: server.max_connections,
            mcp: server.mcp.clone(),
        }
    }

    /// Serves clients, or waits for the end where the role has none.
    async fn serve_public(&self, listener: Option<(TcpListener, SocketAddr)>) -> Result<(), Failure> {
        let Some((listener, address)) = listener else {
            tracing::info!("keepsake runs the scheduled jobs");
            self.lifecycle.stopping.cancelled().await;
            return Ok(());
        };
        tracing::info!("keepsake listens on http://{address}");
        let (engine, lifecycle) = (self.engine.clone(), self.lifecycle.clone());
        keepsake_server::serve(engine, listener, self.options(), lifecycle)
            .await
            .map_err(Failure::of(format_args!("the listener on {address} broke")))
    }

    /// Serves the operator, or nobody where there is no token.
    async fn serve_operator(
        &self,
        operator: Option<((TcpListener, SocketAddr), &OperatorSettings)>,
    ) -> Result<(), Failure> {
        let Some(((listener, address), settings)) = operator else {
            return Ok(());
        };
        tracing::info!("keepsake serves its operator on http://{address}");
        let options = OperatorOptions {
            token: settings.token,
            exposition: self.telemetry.exposition().clone(),
            metrics_without_token: self.settings.telemetry.metrics_without_token,
            server: self.options(),
        };
        let (engine, lifecycle) = (self.engine.clone(), self.lifecycle.clone());
        keepsake_server::serve_operator(engine, listener, options, lifecycle)
            .await
            .map_err(Failure::of(format_args!(
                "the operator's listener on {address} broke"
            )))
    }
}

/// The one deadline of all that is waited for once the process is to stop.
#[derive(Debug)]
struct Ending {
    deadline: Duration,
    stopped_at: Arc<OnceLock<Instant>>,
}

impl Ending {
    /// Starts the countdown when the process is asked to stop, and exits if the
    /// process has not ended by itself [`LAST_STEPS`] after the deadline.
    fn of(lifecycle: &Lifecycle, deadline: Duration) -> Self {
        let stopped_at = Arc::new(OnceLock::new());
        let (stopping, noted) = (lifecycle.stopping.clone(), Arc::clone(&stopped_at));
        tokio::spawn(async move {
            stopping.cancelled().await;
            noted.get_or_init(Instant::now);
            // A thread: whatever the tasks of the runtime do, it goes on.
            std::thread::spawn(move || {
                std::thread::sleep(deadline + LAST_STEPS);
                tracing::error!("keepsake ends before its work did: the shutdown deadline passed");
                std::process::exit(LATE_EXIT_CODE);
            });
        });
        Self { deadline, stopped_at }
    }

    /// What is left of the deadline; all of it before the process is to stop.
    fn left(&self) -> Duration {
        let passed = self.stopped_at.get().map(Instant::elapsed);
        self.deadline.saturating_sub(passed.unwrap_or_default())
    }
}

/// A worker has no clients that must go elsewhere first.
fn drain(settings: &Settings) -> Duration {
    match settings.role {
        Role::All | Role::Gateway => settings.server.drain,
        Role::Worker => Duration::ZERO,
    }
}

/// Says at the start what would otherwise show at the first write.
async fn warn_of_blobs(blobs: Arc<dyn BlobStore>) {
    let consequence = "writes and reads of content that is not cached are answered 503 until this is corrected; \
        no restart is needed. `keepsake config check --connect` tries each step";
    match blobs.check().await {
        Ok(()) => {}
        Err(error @ (BlobError::Denied(_) | BlobError::Misconfigured(_))) => {
            tracing::error!(error = %error, "the server may not use its blob store (blobs.url): {consequence}");
        }
        Err(error) => {
            tracing::warn!(error = %error, "the blob store (blobs.url) cannot be used: {consequence}");
        }
    }
}

/// Lets a process that was asked to end serve on for a while first.
async fn stop_after(lifecycle: Lifecycle, drain: Duration) {
    lifecycle.draining.cancelled().await;
    tokio::select! {
        () = tokio::time::sleep(drain) => lifecycle.stopping.cancel(),
        () = lifecycle.stopping.cancelled() => {}
    }
}

async fn listen(key: &str, wanted: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = || Failure::of(format!("{key} {wanted} cannot be used"));
    let listener = TcpListener::bind(wanted).await.map_err(failed())?;
    let address = listener.local_addr().map_err(failed())?;
    Ok((listener, address))
}

/// Where a client on this machine reaches the listener.
fn base_url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    format!("http://{address}")
}

/// Finishes writes under way and closes the database.
async fn end(engine: &Engine, backends: &Backends, deadline: Duration) {
    if !engine.shut_down(deadline).await {
        tracing::warn!("keepsake ended before all writes did: the shutdown deadline passed");
    }
    if tokio::time::timeout(LAST_CLOSE, backends.index.close())
        .await
        .is_err()
    {
        tracing::warn!("index.close did not end in time");
    }
}

/// Exports what has not been exported yet.
async fn end_telemetry(telemetry: Telemetry) {
    let ended = tokio::task::spawn_blocking(move || telemetry.shut_down(LAST_EXPORT));
    if let Ok(Err(error)) = ended.await {
        tracing::warn!(error = %error, "telemetry.export failed at shutdown: the last of it is lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_is_one_that_a_client_can_reach() {
        for (address, url) in [
            ("127.0.0.1:80", "http://127.0.0.1:80"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://[::1]:8080"),
            ("192.0.2.1:8080", "http://192.0.2.1:8080"),
        ] {
            assert_eq!(base_url(address.parse().unwrap()), url);
        }
    }
}
