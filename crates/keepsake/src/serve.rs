//! `keepsake serve`: from a configuration to a running server, and its end.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use keepsake_engine::Engine;
use keepsake_engine::jobs::Runner;
use keepsake_server::{OperatorOptions, ServerOptions};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::backends::{self, Backends};
use crate::cli::ServeArgs;
use crate::config::{Merged, OperatorSettings, Role, Settings};
use crate::data_dir;
use crate::dev;
use crate::failure::Failure;
use crate::{logs, signals};

/// Serves until a signal asks it to end.
///
/// # Errors
/// [`Failure`] when it cannot start, or its listener broke.
pub(crate) async fn run(args: ServeArgs) -> Result<(), Failure> {
    let shutdown = signals::shutdown_token().map_err(Failure::of("signals cannot be caught"))?;
    let mut sources = args.sources.into_sources();
    sources.listen = args.listen;
    sources.role = args.role;
    if args.dev && sources.data_dir.is_none() {
        sources.data_dir = Some(data_dir::default_folder(|name| std::env::var_os(name))?);
    }
    let folder = sources.data_dir.clone();
    let merged = sources.merge();
    let settings = merged.settings()?;
    logs::start(&settings.log);
    if let Some(folder) = &folder {
        data_dir::prepare(folder)?;
    }
    let opened = tokio::select! {
        opened = open(&merged, &settings, args.migrate) => opened?,
        // A database that does not answer must not keep the process from ending.
        () = shutdown.cancelled() => return Ok(()),
    };
    if !settings.vault.is_locked() && !args.dev {
        tracing::warn!(
            "secrets.master_key is not set: the keys that sign tokens and cursors are in the index as they are, \
             and whoever reads it can sign"
        );
    }
    let engine = opened.engine(&settings);
    let dev_folder = folder.filter(|_| args.dev);
    let served = serve(&engine, &opened, &settings, dev_folder.as_deref(), shutdown).await;
    end(&engine, &opened, settings.server.shutdown_deadline).await;
    served
}

async fn open(merged: &Merged, settings: &Settings, migrate: bool) -> Result<Backends, Failure> {
    if migrate {
        backends::migrate(&merged.migration()?).await?;
    }
    Backends::open(settings).await
}

/// Does what the role asks until the token is cancelled.
async fn serve(
    engine: &Engine,
    backends: &Backends,
    settings: &Settings,
    dev_folder: Option<&Path>,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
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
    let options = ServerOptions {
        request_deadline: settings.server.request_deadline,
        shutdown_deadline: settings.server.shutdown_deadline,
        max_requests_in_flight: settings.server.max_requests_in_flight,
        max_connections: settings.server.max_connections,
    };
    let served = tokio::try_join!(
        serve_public(engine, listener, options, shutdown.clone()),
        serve_operator(engine, operator, options, shutdown),
    );
    runner.stop(settings.server.shutdown_deadline).await;
    served.map(|_| ())
}

/// Serves clients, or waits for the end where the role has none.
async fn serve_public(
    engine: &Engine,
    listener: Option<(TcpListener, SocketAddr)>,
    options: ServerOptions,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let Some((listener, address)) = listener else {
        tracing::info!("keepsake runs the scheduled jobs");
        shutdown.cancelled().await;
        return Ok(());
    };
    tracing::info!("keepsake listens on http://{address}");
    keepsake_server::serve(engine.clone(), listener, options, shutdown)
        .await
        .map_err(Failure::of(format_args!("the listener on {address} broke")))
}

/// Serves the operator, or nobody where there is no token.
async fn serve_operator(
    engine: &Engine,
    operator: Option<((TcpListener, SocketAddr), &OperatorSettings)>,
    server: ServerOptions,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let Some(((listener, address), settings)) = operator else {
        return Ok(());
    };
    tracing::info!("keepsake serves its operator on http://{address}");
    let options = OperatorOptions {
        token: settings.token,
        server,
    };
    keepsake_server::serve_operator(engine.clone(), listener, options, shutdown)
        .await
        .map_err(Failure::of(format_args!(
            "the operator's listener on {address} broke"
        )))
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
    backends.index.close().await;
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
