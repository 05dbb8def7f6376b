//! `keepsake mcp`: one MCP client over stdin and stdout.
//!
//! The memories are in a local folder or, through a bridge, on a server. Stdout
//! has only the protocol; the log goes to stderr.

mod stdio;

use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use keepsake_client::{AnswerHead, Client, StatusCode, body_of, from_json};
use keepsake_config::{Failure, Sources, cli::Result};
use keepsake_core::slug::slug_of;
use keepsake_engine::{Engine, PageRequest, Principal, Runner, StoreDraft};
use keepsake_index::{Store, StoreFilter};
use keepsake_mcp::{Access, HttpOptions, HttpService};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::backends::Backends;
use crate::cli::ServerArgs;
use crate::people::{connect, find_store};
use crate::{data_dir, dev, logs, signals};

/// The server URL in a folder's credentials until a server was started.
const NO_SERVER_YET: &str = "http://127.0.0.1:8080";

/// The variable with the store, if `--store` is not given. It is not a store in a folder.
const STORE_VARIABLE: &str = "KEEPSAKE_STORE";

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
            let bridge = Bridge::open(&args).await?;
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

/// A memory store on a server, or the stores of a session's token.
struct Bridge {
    client: Client,
    url: String,
}

impl Bridge {
    /// Finds the store, without a message to MCP.
    async fn open(args: &McpArgs) -> Result<Self> {
        let (client, of_context) = connect(&args.server)?;
        // The API key may be a session's token, which has its own stores.
        let of_context = of_context.filter(|_| args.server.api_key.is_none());
        let named = args.store.clone().or_else(|| std::env::var(STORE_VARIABLE).ok());
        let store_id = match named.or(of_context) {
            Some(store) => Some(find_store(&client, &store).await?),
            None => None,
        };
        let url = match store_id {
            Some(store_id) => format!("{}/mcp/{store_id}", client.url()),
            None => format!("{}/mcp", client.url()),
        };
        Ok(Self { client, url })
    }

    async fn ask(&self, headers: HeaderMap, message: Bytes) -> Result<Option<Value>, String> {
        let response = self
            .client
            .http()
            .post(&self.url)
            .headers(headers)
            .body(message)
            .send()
            .await
            .map_err(|error| self.client.unreachable(&error).to_string())?;
        if let Some(error) = self.client.misdirected(&response) {
            return Err(error.to_string());
        }
        let head = AnswerHead::of(&response);
        let status = head.status;
        let body = body_of(response)
            .await
            .map_err(|error| format!("the server's answer cannot be read: {error}"))?;
        if status == StatusCode::ACCEPTED {
            return Ok(None);
        }
        let answer: Value = from_json(&body).map_err(|_| self.client.no_json(head))?;
        if answer.get("jsonrpc").is_some() {
            return Ok(Some(answer));
        }
        let why = answer["error"]["message"].as_str().unwrap_or("no reason is given");
        Err(format!("the server answered {status}: {why}"))
    }
}
