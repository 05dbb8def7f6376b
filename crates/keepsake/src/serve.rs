//! `keepsake serve`: starts and stops the server.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use keepsake_blobs::{BlobError, BlobStore};
use keepsake_config::{
    Failure, FailureClass, Meaning, OperatorSettings, Role, Settings, SourceArgs, cli::Result,
};
use keepsake_engine::{Clock, Engine, IdSource, RandomIds, Runner, SystemClock};
use keepsake_server::{ConsoleOptions, Lifecycle, OneTimeLinks, OperatorOptions, ServerOptions, SignIn};
use keepsake_telemetry::Telemetry;
use tokio::net::TcpListener;

use crate::backends::{self, Backends};
use crate::{data_dir, dev, logs, model, signals};

/// Timeout of the last export of metrics, and of spans.
const EXPORT_TIMEOUT: Duration = Duration::from_millis(500);
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum life of the process after the shutdown deadline: time to write access
/// times ([`keepsake_engine::LAST_WRITES`]) and to export metrics and spans.
const EXIT_GRACE: Duration = Duration::from_secs(4);
/// Why a server does not start during a move.
const CONTENT_MOVES: &str = "`keepsake blobs move` is removing content from its old place: start the server when it has ended, \
    with blobs.url set to where the content is then. If it was killed, wait two minutes, and run it again";
/// What `--dev` logs: no line for each request, and none about the fleet.
const DEV_LOG_FILTER: &str = "info,keepsake_server=warn,keepsake_engine=warn";
/// The exit code if the shutdown did not finish in time.
const TIMEOUT_EXIT_CODE: i32 = 1;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// Keeps all data in one folder; creates a tenant, a store and a key at the first start
    #[arg(long, conflicts_with = "config")]
    dev: bool,
    /// With --dev: does not download the model for search by meaning if it is missing
    #[arg(long, requires = "dev")]
    no_model: bool,
    /// The address to listen on: host:port
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// What is logged: a level, or a filter such as keepsake=debug,info [default: info, and with --dev
    /// no line for each request]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// The work of this process
    #[arg(long, value_name = "ROLE", value_enum)]
    role: Option<Role>,
    /// Migrates a Postgres database before serving; a sqlite:// one always is
    #[arg(long)]
    migrate: bool,
}

/// Serves until a signal arrives.
pub(crate) async fn run(args: ServeArgs) -> Result<()> {
    let lifecycle = signals::lifecycle()?;
    let mut sources = args.sources.into_sources();
    sources.listen = args.listen;
    sources.role = args.role;
    sources.log_filter = args.log;
    sources.default_log_filter = args.dev.then_some(DEV_LOG_FILTER);
    if args.dev && sources.data_dir.is_none() {
        sources.data_dir = Some(data_dir::default_folder()?);
    }
    let folder = sources.data_dir.clone();
    let merged = sources.merge();
    let settings = merged.settings()?;
    let shutdown = ShutdownDeadline::start(&lifecycle, settings.server.options.shutdown_deadline);
    // A worker has no clients.
    let drain = if settings.role == Role::Worker { Duration::ZERO } else { settings.server.drain };
    tokio::spawn(stop_after(lifecycle.clone(), drain));
    let telemetry = start_telemetry(&settings)?;
    logs::start(&settings.log, Some(&telemetry));
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    let opening = async {
        if args.migrate {
            backends::migrate(&merged.migration()?, false).await?;
        }
        Backends::open(&settings, telemetry.metrics().clone()).await
    };
    let opened = tokio::select! {
        opened = opening => opened?,
        // A signal ends the start even if the database does not answer.
        () = lifecycle.draining.cancelled() => return Ok(()),
    };
    if !settings.engine.vault.is_locked() && !args.dev {
        tracing::warn!(
            "secrets.master_key is not set: the keys that sign tokens and cursors are not encrypted in the index, \
             so anyone who can read it can sign"
        );
    }
    if settings.operator.is_none() && !args.dev {
        tracing::info!("operator.token is not set: there is no operator's API or console, and no /metrics");
    }
    let engine = opened.engine(&settings);
    let serving = ServerRun {
        engine: &engine,
        settings: &settings,
        telemetry: &telemetry,
        lifecycle,
        shutdown: &shutdown,
        links: OneTimeLinks::default(),
    };
    let dev_folder = folder.filter(|_| args.dev);
    let dev = dev_folder.as_deref().map(|folder| Dev {
        folder,
        fetches_model: !args.no_model
            && matches!(settings.search.meaning, Meaning::Embedded)
            && model::is_missing(&settings.search.model_path),
    });
    let served = serving.run(&opened, dev).await;
    end(&engine, &opened, shutdown.left()).await;
    end_telemetry(telemetry).await;
    served
}

fn start_telemetry(settings: &Settings) -> Result<Telemetry> {
    let now = SystemClock.now();
    let (version, instance_id) = (env!("CARGO_PKG_VERSION"), RandomIds.uuid(now).to_string());
    let telemetry = Telemetry::start(&settings.telemetry, version, instance_id)
        .map_err(Failure::of("telemetry.otlp_endpoint"))?;
    let since_1970 = Duration::from_micros(u64::try_from(now.as_micros()).unwrap_or(0));
    telemetry.metrics().process_started(since_1970.as_secs_f64());
    Ok(telemetry)
}

/// What `serve --dev` adds to a server.
struct Dev<'a> {
    folder: &'a Path,
    /// Whether the model for search by meaning is fetched.
    fetches_model: bool,
}

struct ServerRun<'a> {
    engine: &'a Engine,
    settings: &'a Settings,
    telemetry: &'a Telemetry,
    lifecycle: Lifecycle,
    shutdown: &'a ShutdownDeadline,
    /// Links that sign in to the console once.
    links: OneTimeLinks,
}

impl ServerRun<'_> {
    /// Runs the listeners and the jobs of the role until shutdown.
    async fn run(&self, backends: &Backends, dev: Option<Dev<'_>>) -> Result<()> {
        let (engine, settings) = (self.engine, self.settings);
        engine.prepare_secrets().await.map_err(Failure::of("the server's secrets (secrets.master_key)"))?;
        if !engine.replica.may_serve().await {
            return Err(Failure::of_class(FailureClass::Unavailable, CONTENT_MOVES));
        }
        let listener = match settings.role {
            Role::All | Role::Gateway => Some(listen("server.listen", &settings.server.listen).await?),
            Role::Worker => None,
        };
        let operator = match &settings.operator {
            Some(operator) => Some((listen("operator.listen", &operator.listen).await?, operator)),
            None => None,
        };
        let started = match (&dev, &listener) {
            (Some(dev), Some((_, address))) => {
                Some(dev::start(engine, backends, dev.folder, &base_url(*address)).await?)
            }
            _ => None,
        };
        let is_worker = settings.role != Role::Gateway;
        let runner = Runner::start(engine, is_worker)
            .await
            .map_err(Failure::of("the scheduled jobs cannot be started"))?;
        if let Some(blobs) = &backends.blobs {
            tokio::spawn(log_blob_problems(Arc::clone(blobs)));
        }
        tokio::spawn(log_misplaced_content(engine.clone()));
        match (&dev, &started, &listener) {
            (Some(dev), Some(started), _) => self.welcome(dev, started)?,
            (.., Some((_, address))) => tracing::info!("keepsake listens on http://{address}"),
            (.., None) => tracing::info!("keepsake runs the scheduled jobs"),
        }
        let served = tokio::try_join!(self.serve_public(listener), self.serve_operator(operator));
        runner.stop(self.shutdown.left()).await;
        served.map(|_| ())
    }

    /// Remembers the server for commands, and prints how to use it. The link to the console
    /// comes last.
    fn welcome(&self, dev: &Dev<'_>, started: &dev::Started) -> Result<()> {
        let context = dev::remember(&started.credentials, dev.folder).inspect_err(|failure| {
            tracing::warn!(error = %failure, "the context was not saved: commands need --url and --api-key");
        });
        logs::flush();
        dev::print_credentials(started, dev.folder, context.ok().as_deref())?;
        if dev.fetches_model {
            model::print_fetching()?;
            let (folder, shutdown) =
                (self.settings.search.model_path.clone(), self.lifecycle.draining.clone());
            tokio::spawn(model::install_missing(folder, shutdown));
        }
        dev::print_console_link(&self.links, &started.credentials, RandomIds.secret(), SystemClock.now())
    }

    fn options(&self) -> ServerOptions {
        let public_url = self.settings.server.public_url.as_deref();
        ServerOptions {
            sign_in: SignIn {
                public_url: public_url.map(Into::into),
                issuers: self.settings.engine.issuers.names().into(),
            },
            console: ConsoleOptions {
                is_https: public_url.is_some_and(|url| url.starts_with("https://")),
                public_url: public_url.map(Into::into),
                links: self.links.clone(),
            },
            ..self.settings.server.options.clone()
        }
    }

    /// Serves clients; a worker only waits for the shutdown.
    async fn serve_public(&self, listener: Option<(TcpListener, SocketAddr)>) -> Result<()> {
        let Some((listener, address)) = listener else {
            self.lifecycle.stopping.cancelled().await;
            return Ok(());
        };
        let (engine, lifecycle) = (self.engine.clone(), self.lifecycle.clone());
        keepsake_server::serve(engine, listener, self.options(), lifecycle)
            .await
            .map_err(Failure::of(format_args!("the listener on {address} failed")))
    }

    /// Serves the operator API if it has a token.
    async fn serve_operator(
        &self,
        operator: Option<((TcpListener, SocketAddr), &OperatorSettings)>,
    ) -> Result<()> {
        let Some(((listener, address), settings)) = operator else {
            return Ok(());
        };
        tracing::info!("keepsake serves its operator on http://{address}");
        let options = OperatorOptions {
            token: settings.token,
            exposition: self.telemetry.exposition().clone(),
            metrics_without_token: self.settings.metrics_without_token,
            server: self.options(),
        };
        let (engine, lifecycle) = (self.engine.clone(), self.lifecycle.clone());
        keepsake_server::serve_operator(engine, listener, options, lifecycle)
            .await
            .map_err(Failure::of(format_args!("the operator's listener on {address} failed")))
    }
}

/// The deadline that all steps of a shutdown share.
#[derive(Debug)]
struct ShutdownDeadline {
    deadline: Duration,
    stopped_at: Arc<OnceLock<Instant>>,
}

impl ShutdownDeadline {
    /// Starts the deadline when the shutdown starts, and exits the process
    /// [`EXIT_GRACE`] after it.
    fn start(lifecycle: &Lifecycle, deadline: Duration) -> Self {
        let stopped_at = Arc::new(OnceLock::new());
        let (stopping, noted) = (lifecycle.stopping.clone(), Arc::clone(&stopped_at));
        tokio::spawn(async move {
            stopping.cancelled().await;
            noted.get_or_init(Instant::now);
            // A thread, because blocked tasks could keep the runtime from running this.
            std::thread::spawn(move || {
                std::thread::sleep(deadline + EXIT_GRACE);
                tracing::error!("shutdown deadline exceeded: exiting with unfinished work");
                logs::flush();
                std::process::exit(TIMEOUT_EXIT_CODE);
            });
        });
        Self { deadline, stopped_at }
    }

    /// The time left; the whole deadline before the shutdown starts.
    fn left(&self) -> Duration {
        let passed = self.stopped_at.get().map(Instant::elapsed);
        self.deadline.saturating_sub(passed.unwrap_or_default())
    }
}

/// Logs at the start if the blob store cannot be used.
async fn log_blob_problems(blobs: Arc<dyn BlobStore>) {
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

/// Logs at the start if content is not where the configuration says.
async fn log_misplaced_content(engine: Engine) {
    if let Ok(Some(key)) = engine.verifier.misplaced_content().await {
        tracing::error!(
            blob.key = %key,
            "content of this index is not at blobs.url: set it to where the content is, or stop the server and run \
             `keepsake blobs move`"
        );
    }
}

/// Stops the server `drain` after the shutdown started.
async fn stop_after(lifecycle: Lifecycle, drain: Duration) {
    lifecycle.draining.cancelled().await;
    tokio::select! {
        () = tokio::time::sleep(drain) => lifecycle.stopping.cancel(),
        () = lifecycle.stopping.cancelled() => {}
    }
}

async fn listen(key: &str, wanted: &str) -> Result<(TcpListener, SocketAddr)> {
    let failed = || Failure::of(format!("{key} {wanted} cannot be used"));
    let listener = TcpListener::bind(wanted).await;
    let listener = listener.map_err(|error| {
        let is_taken = error.kind() == ErrorKind::AddrInUse;
        let failure = failed()(error);
        if !is_taken {
            return failure;
        }
        let other = match key {
            "server.listen" => "--listen names another address, such as --listen 127.0.0.1:8090",
            _ => "name another address in the configuration",
        };
        Failure::new(format!("{failure}: another process listens there; end it, or {other}"))
    })?;
    let address = listener.local_addr().map_err(failed())?;
    Ok((listener, address))
}

/// The URL of the listener for a client on this machine.
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

/// Waits for running writes and closes the database.
async fn end(engine: &Engine, backends: &Backends, deadline: Duration) {
    if !engine.shut_down(deadline).await {
        tracing::warn!("shutdown deadline exceeded: some writes did not finish");
    }
    if tokio::time::timeout(CLOSE_TIMEOUT, backends.index.close()).await.is_err() {
        tracing::warn!("index.close timed out");
    }
}

async fn end_telemetry(telemetry: Telemetry) {
    let ended = tokio::task::spawn_blocking(move || telemetry.shut_down(EXPORT_TIMEOUT));
    if let Ok(Err(error)) = ended.await {
        tracing::warn!(error = %error, "telemetry.export failed at shutdown: the last metrics and spans are lost");
    }
}
