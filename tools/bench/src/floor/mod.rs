//! The floor: a server with the minimum of work for the same calls.
//!
//! It runs in a separate process on the same database server and blob store. It
//! has no tenants, limits or versions: a view is one query and a body of the right
//! size, a new memory is one blob and one row, and an edit is both. Its speed is
//! an upper limit for the measured server.

mod postgres;
mod sqlite;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use bytes::Bytes;
use keepsake_blobs::BlobStore;
use keepsake_config::{Failure, SourceArgs};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::{Clock, IdSource, RandomIds, SystemClock};
use uuid::Uuid;

use postgres::PostgresFloor;
use sqlite::SqliteFloor;

use super::plan::{Command, PAGE};
use super::settings::{IndexPlace, floor_blobs};

/// Options of `keepsake-bench floor`, which only the benchmark runs.
#[derive(Debug, clap::Args)]
pub(super) struct FloorArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// The address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Bytes of the content that a new memory has
    #[arg(long)]
    content_bytes: usize,
    /// Bytes of the answer of each command, in the order of `Command::OF_FLOOR`
    #[arg(long, value_delimiter = ',')]
    answer_bytes: Vec<usize>,
}

/// The key of a memory in a query.
struct Place {
    tenant: Uuid,
    store: Uuid,
    path: String,
}

/// A row of the same size as a version.
struct NewRow<'a> {
    place: &'a Place,
    seq: i64,
    version: Uuid,
    memory: Uuid,
    size_bytes: i64,
    sha256: &'a [u8],
    created_at: i64,
    actor_id: &'a str,
    /// The content, unless it is in an object store.
    content: Option<&'a [u8]>,
}

/// The query that inserts a version; its type depends on the database.
macro_rules! insertion {
    ($row:ident) => {
        sqlx::query(
            "INSERT INTO bench_floor_version (tenant_id, store_id, seq, version_id, memory_id, op, path, blob_id, \
             size_bytes, sha256, created_at, actor_type, actor_id, content) \
             VALUES ($1, $2, $3, $4, $5, 'created', $6, $4, $7, $8, $9, 'api_actor', $10, $11)",
        )
        .bind($row.place.tenant)
        .bind($row.place.store)
        .bind($row.seq)
        .bind($row.version)
        .bind($row.memory)
        .bind(&$row.place.path)
        .bind($row.size_bytes)
        .bind($row.sha256)
        .bind($row.created_at)
        .bind($row.actor_id)
        .bind($row.content)
    };
}
use insertion;

/// The query that reads a page of a directory; its type depends on the database.
macro_rules! page {
    ($table:literal, $place:ident, $range:ident) => {
        sqlx::query(concat!(
            "SELECT path, size_bytes, memory_id, version_id, sha256 FROM ",
            $table,
            " WHERE tenant_id = $1 AND store_id = $2 AND path >= $3 AND path < $4 AND deleted_at IS NULL \
             ORDER BY path LIMIT $5 + 0"
        ))
        .bind($place.tenant)
        .bind($place.store)
        .bind(&$range[0])
        .bind(&$range[1])
        .bind(i64::try_from(PAGE).unwrap_or(i64::MAX))
    };
}
use page;

enum FloorIndex {
    Postgres(PostgresFloor),
    Sqlite(SqliteFloor),
}

struct Floor {
    index: FloorIndex,
    blobs: Option<Arc<dyn BlobStore>>,
    content: Bytes,
    /// Of the commands of `Command::OF_FLOOR`.
    answers: Vec<Bytes>,
    /// A key of the object store with the content, if there is one.
    stored: Option<BlobKey>,
    next_seq: AtomicI64,
}

/// Serves the floor until it is killed.
///
/// # Errors
/// [`Failure`] of the database or the blob store.
pub(super) async fn run_floor(args: FloorArgs) -> Result<(), Failure> {
    let settings = args.sources.into_sources().merge().settings()?;
    let index = match IndexPlace::of(&settings) {
        IndexPlace::Postgres { url, owner_url } => {
            let connections = settings.index.max_connections;
            PostgresFloor::prepare(url, owner_url, connections).await.map(FloorIndex::Postgres)
        }
        IndexPlace::Sqlite { file } => SqliteFloor::prepare(file).await.map(FloorIndex::Sqlite),
    };
    let index = index.map_err(Failure::of("the floor's tables cannot be made"))?;
    let filler = |bytes| Bytes::from(vec![b'x'; bytes]);
    let blobs = floor_blobs(&settings).await?;
    let content = filler(args.content_bytes);
    let floor = Floor {
        index,
        stored: store_content(blobs.as_deref(), &content).await?,
        blobs,
        content,
        answers: args.answer_bytes.into_iter().map(filler).collect(),
        next_seq: AtomicI64::new(1),
    };
    let router = Router::new()
        .route("/livez", get(async || "live"))
        .route("/view/{tenant}/{store}/{*path}", post(view))
        .route("/cold/{tenant}/{store}/{*path}", post(view_uncached))
        .route("/directory/{tenant}/{store}/{*path}", post(view_directory))
        .route("/list/{tenant}/{store}/{*path}", post(list))
        .route("/create/{tenant}/{store}/{*path}", post(create))
        .route("/edit/{tenant}/{store}/{*path}", post(edit))
        .with_state(Arc::new(floor));
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .map_err(Failure::of(format_args!("the floor cannot listen on {}", args.listen)))?;
    let listener = listener.tap_io(|stream| {
        // Without it, some responses would wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.map_err(Failure::of("the floor's listener failed"))
}

type Parts = (String, String, String);
type Handled = (State<Arc<Floor>>, Path<Parts>, Bytes);

async fn view((State(floor), Path(parts), _): Handled) -> Response {
    floor.answer(floor.view(parts).await, Command::View)
}

async fn view_uncached((State(floor), Path(parts), _): Handled) -> Response {
    let done = async {
        floor.view(parts).await?;
        floor.get().await
    };
    floor.answer(done.await, Command::View)
}

async fn view_directory((State(floor), Path(parts), _): Handled) -> Response {
    floor.answer(floor.list(parts).await, Command::ViewDirectory)
}

async fn list((State(floor), Path(parts), _): Handled) -> Response {
    floor.answer(floor.list(parts).await, Command::List)
}

async fn create((State(floor), Path(parts), _): Handled) -> Response {
    floor.answer(floor.create(parts).await, Command::Create)
}

async fn edit((State(floor), Path(parts), _): Handled) -> Response {
    let done = async {
        floor.view(parts.clone()).await?;
        floor.create(parts).await
    };
    floor.answer(done.await, Command::StrReplace)
}

/// Puts the content into the object store, for reads; `None`: there is none.
async fn store_content(blobs: Option<&dyn BlobStore>, content: &Bytes) -> Result<Option<BlobKey>, Failure> {
    let Some(blobs) = blobs else {
        return Ok(None);
    };
    let new = || RandomIds.uuid(SystemClock.now());
    let key = BlobKey {
        tenant_id: TenantId::from_uuid(new()),
        store_id: StoreId::from_uuid(new()),
        blob_id: VersionId::from_uuid(new()),
    };
    let put = blobs.put(&key, content.clone()).await;
    put.map_err(Failure::of("the floor's content cannot be stored"))?;
    Ok(Some(key))
}

impl Floor {
    fn answer(&self, done: Result<(), String>, command: Command) -> Response {
        let place = Command::OF_FLOOR.iter().position(|one| *one == command);
        let body = place.and_then(|place| self.answers.get(place)).cloned();
        match done {
            Ok(()) => ([(CONTENT_TYPE, "application/json")], body.unwrap_or_default()).into_response(),
            Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
        }
    }

    /// Reads a content from the object store.
    async fn get(&self) -> Result<(), String> {
        let (Some(blobs), Some(key)) = (&self.blobs, &self.stored) else {
            return Ok(());
        };
        let bytes = u64::try_from(self.content.len()).unwrap_or(u64::MAX);
        blobs.get(key, bytes).await.map(drop).map_err(|error| error.to_string())
    }

    /// Reads a page of the directory of a memory.
    async fn list(&self, parts: Parts) -> Result<(), String> {
        let place = Place::of(parts)?;
        let directory = place.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        // The byte after `/` ends the range of the paths in the directory.
        let range = [format!("{directory}/"), format!("{directory}0")];
        let rows = match &self.index {
            FloorIndex::Postgres(index) => index.list(&place, &range).await,
            FloorIndex::Sqlite(index) => index.list(&place, &range).await,
        };
        match rows {
            Ok(0) => Err("the floor has no rows for a directory of the server's".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn view(&self, parts: Parts) -> Result<(), String> {
        let place = Place::of(parts)?;
        let is_found = match &self.index {
            FloorIndex::Postgres(index) => index.find(&place).await,
            FloorIndex::Sqlite(index) => index.find(&place).await,
        };
        if is_found.map_err(|error| error.to_string())? {
            Ok(())
        } else {
            Err("the floor has no row for a memory of the server's".to_owned())
        }
    }

    async fn create(&self, parts: Parts) -> Result<(), String> {
        let place = Place::of(parts)?;
        let now = SystemClock.now();
        let version = RandomIds.uuid(now);
        let key = BlobKey {
            tenant_id: TenantId::from_uuid(place.tenant),
            store_id: StoreId::from_uuid(place.store),
            blob_id: VersionId::from_uuid(version),
        };
        if let Some(blobs) = &self.blobs {
            let put = blobs.put(&key, self.content.clone()).await;
            put.map_err(|error| error.to_string())?;
        }
        let row = NewRow {
            place: &place,
            seq: self.next_seq.fetch_add(1, Ordering::Relaxed),
            version,
            memory: RandomIds.uuid(now),
            size_bytes: i64::try_from(self.content.len()).unwrap_or(i64::MAX),
            sha256: &[0x5A; 32],
            created_at: now.as_micros(),
            actor_id: "apikey_00000000000000000000000000",
            content: self.blobs.is_none().then_some(&*self.content),
        };
        let inserted = match &self.index {
            FloorIndex::Postgres(index) => index.insert(&row).await,
            FloorIndex::Sqlite(index) => index.insert(&row).await,
        };
        inserted.map_err(|error| error.to_string())
    }
}

impl Place {
    fn of((tenant, store, path): Parts) -> Result<Self, String> {
        let uuid = |text: String| Uuid::parse_str(&text).map_err(|error| error.to_string());
        Ok(Self { tenant: uuid(tenant)?, store: uuid(store)?, path: format!("/{path}") })
    }
}
