//! `keepsake mcp`: one MCP client over stdin and stdout.
//!
//! The memories are in a local folder or, through a bridge, on a server. Stdout
//! has only the protocol; the log goes to stderr.

mod bridge;
mod stdio;

use std::path::PathBuf;

use clap::Args;
use keepsake_config::{Failure, Sources, cli::Result};
use keepsake_core::slug::slug_of;
use keepsake_engine::{Engine, PageRequest, Principal, Runner, StoreDraft};
use keepsake_index::{Store, StoreFilter};
use keepsake_mcp::{Access, HttpOptions, HttpService};

use crate::backends::Backends;
use crate::cli::ServerArgs;
use crate::{data_dir, dev, logs, signals};

/// The server URL in a folder's credentials until a server was started.
const NO_SERVER_YET: &str = "http://127.0.0.1:8080";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake mcp
  keepsake mcp --data-dir memories --store projects
  keepsake mcp --url https://memory.example.com --store notes
  keepsake mcp --context work")]
pub(crate) struct McpArgs {
    /// Keeps all data in this folder, as `serve --dev` does; the default if no server or context is named
    #[arg(long, visible_alias = "data", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The memory store: in a folder its name, created if missing; on a server its id or name, not needed with a session token
    #[arg(short, long, value_name = "STORE")]
    store: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Serves until the client disconnects or a signal arrives.
pub(crate) async fn run(args: McpArgs) -> Result<()> {
    let shutdown = signals::shutdown_token()?;
    if args.data_dir.is_some() {
        args.server.refuse_beside("--data-dir")?;
    }
    let is_bridge = args.data_dir.is_none() && (args.server.url.is_some() || args.server.context.is_some());
    let served = async {
        if is_bridge {
            let bridge = bridge::Bridge::open(&args).await?;
            stdio::serve(stdio::Backend::Server(bridge)).await
        } else {
            embedded(&args).await
        }
    };
    tokio::select! {
        served = served => served,
        () = shutdown.cancelled() => {
            // The thread that reads stdin would block the exit until the next line.
            // Acknowledged writes are durable, and the lock ends with the process.
            logs::flush();
            std::process::exit(0)
        }
    }
}

async fn embedded(args: &McpArgs) -> Result<()> {
    let folder = match &args.data_dir {
        Some(folder) => folder.clone(),
        None => data_dir::default_folder()?,
    };
    let sources = Sources { data_dir: Some(folder.clone()), ..Sources::default() };
    let settings = sources.merge().settings()?;
    let backends = Backends::open_for_command(&settings, Some(&folder)).await?;
    let engine = backends.engine(&settings);
    let served = async {
        engine.prepare_secrets().await.map_err(Failure::of("the server's secrets (secrets.master_key)"))?;
        let (local, _) = dev::find_or_create(&engine, &backends, &folder, NO_SERVER_YET).await?;
        let principal = engine
            .auth
            .authenticate(&local.api_key)
            .await
            .map_err(Failure::of("the folder's API key is refused"))?;
        let store = match &args.store {
            Some(name) => find_or_create_store(&engine, &principal, name).await,
            None => engine.stores.get(&principal, local.memory_store_id).await,
        };
        let store = store.map_err(Failure::of("the memory store cannot be opened"))?;
        let runner = Runner::start(&engine, true)
            .await
            .map_err(Failure::of("the scheduled jobs cannot be started"))?;
        tracing::info!(folder = %folder.display(), store.id = %store.store_id, "keepsake serves an MCP client");
        let access = Access {
            principal: std::sync::Arc::new(principal.over_mcp()),
            mounts: store.store_id.into(),
            slugs: [slug_of(&store.name, &[])].into(),
            held: None,
        };
        let service = Box::new(HttpService::new(engine.clone(), HttpOptions::default()));
        let served = stdio::serve(stdio::Backend::Folder(service, access)).await;
        runner.stop(settings.server.options.shutdown_deadline).await;
        served
    };
    let served = served.await;
    if !engine.shut_down(settings.server.options.shutdown_deadline).await {
        tracing::warn!("shutdown deadline exceeded: some writes did not finish");
    }
    backends.index.close().await;
    served
}

/// The newest store of this name, or a new one.
async fn find_or_create_store(
    engine: &Engine,
    principal: &std::sync::Arc<Principal>,
    name: &str,
) -> Result<Store, keepsake_engine::EngineError> {
    let mut next = PageRequest { limit: Some(100), page: None };
    loop {
        let page = engine.stores.list(principal, &StoreFilter::default(), &next).await?;
        if let Some(store) = page.items.into_iter().find(|store| store.name == name) {
            return Ok(store);
        }
        match page.next {
            Some(cursor) => next.page = Some(cursor),
            None => break,
        }
    }
    let draft = StoreDraft { name: name.to_owned(), ..StoreDraft::default() };
    engine.stores.create(principal, draft, None).await
}
