//! The tenant, the store and the API key of `keepsake serve --dev` and `keepsake mcp`.
//!
//! They are created at the first start. The file `dev-credentials.json` in the data
//! folder has their ids, the URL and the API key for clients; it is written after the
//! rows that it names. If it is missing, unreadable or unknown to the index, as after a
//! restore, the tenant and the store that the index has are used; what it lacks is
//! created. A credential of another index is kept beside the new one.

use std::fs;
use std::path::Path;

use keepsake_config::{Failure, cli::Result};
use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{StoreId, TenantId, Timestamp};
use keepsake_engine::{Engine, KeyDraft, NewTenant, StoreDraft};
use keepsake_index::{Auditor, Index, IndexError, Scope, Store, StoreListing, Tenant, TenantStatus};
use keepsake_server::OneTimeLinks;
use serde::{Deserialize, Serialize};

use crate::backends::Backends;
use crate::contexts::{Context, Contexts};
use crate::data_dir::write_private_file;
use crate::open_folder::if_there;
use crate::output::print;

const CREDENTIALS_FILE: &str = "dev-credentials.json";
/// The name of the tenant, the store and the key.
const NAME: &str = "dev";
/// Maximum number of files of earlier credentials that are kept.
const MAX_ASIDE: u32 = 1_000;
/// Maximum number of tenants, or stores of a tenant, that are searched.
const MAX_LOOKED_AT: u32 = 1_000;

/// The credentials of a client; without `Debug`, because they contain the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    base_url: String,
    pub(crate) api_key: String,
    pub(crate) memory_store_id: StoreId,
    // Its name in earlier versions.
    #[serde(alias = "workspace_id")]
    tenant_id: TenantId,
}

/// What a start found or created.
pub(crate) struct Started {
    pub(crate) credentials: Credentials,
    is_new: bool,
}

/// Finds or creates tenant, store and key, and keeps the URL for clients.
pub(crate) async fn start(
    engine: &Engine,
    backends: &Backends,
    folder: &Path,
    base_url: &str,
) -> Result<Started> {
    let (mut credentials, is_new) = find_or_create(engine, backends, folder, base_url).await?;
    if credentials.base_url != base_url {
        base_url.clone_into(&mut credentials.base_url);
        write(&folder.join(CREDENTIALS_FILE), &credentials)?;
    }
    Ok(Started { credentials, is_new })
}

/// Prints how to use the server.
///
/// A new key is printed once, with example commands. For an existing key only
/// the file that contains it is printed.
pub(crate) fn print_credentials(started: &Started, folder: &Path, context: Option<&str>) -> Result<()> {
    let (path, credentials) = (folder.join(CREDENTIALS_FILE), &started.credentials);
    let list = context.map_or_else(String::new, |context| {
        let program = std::env::args().next();
        let program = program.as_deref().unwrap_or("keepsake");
        format!("{program} memory ls --context {context}\n")
    });
    if started.is_new {
        return print(&welcome_text(credentials, &path, &list));
    }
    print(&format!(
        "{}, with its earlier data and credentials ({})\n{list}",
        headline(credentials),
        path.display()
    ))
}

fn headline(credentials: &Credentials) -> String {
    format!("Keepsake keeps the memory of your agents, at {}", credentials.base_url)
}

/// Prints a link that signs in to the web console once.
pub(crate) fn print_console_link(
    links: &OneTimeLinks,
    credentials: &Credentials,
    random: [u8; 32],
    now: Timestamp,
) -> Result<()> {
    let path = links.add(&credentials.api_key, random, now);
    print(&format!(
        "\nOpen the console, signed in; the link works once, within ten minutes:\n\n{}{path}\n",
        credentials.base_url
    ))
}

/// Makes a context for this folder, so that the commands find the server; answers its name.
///
/// It becomes the current context only if there is no other.
pub(crate) fn remember(credentials: &Credentials, folder: &Path) -> Result<String> {
    let (mut contexts, path) = Contexts::of_user()?;
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let context = Context {
        url: credentials.base_url.clone(),
        api_key: credentials.api_key.clone(),
        store: Some(credentials.memory_store_id.to_string()),
        data_dir: Some(folder.display().to_string()),
    };
    let name = contexts.insert_dev(context);
    contexts.write(&path)?;
    Ok(name)
}

/// Finds or creates tenant, store and key, and prints nothing. Also returns whether the
/// key is new.
pub(crate) async fn find_or_create(
    engine: &Engine,
    backends: &Backends,
    folder: &Path,
    base_url: &str,
) -> Result<(Credentials, bool)> {
    let path = folder.join(CREDENTIALS_FILE);
    let (index, known) = (&backends.index, read(&path)?);
    if let Some(known) = &known
        && is_valid(index, known).await.map_err(Failure::of("the index"))?
    {
        return Ok((known.clone(), false));
    }
    let (tenant_id, memory_store_id) = find_or_create_store(engine, index, known.as_ref()).await?;
    let draft =
        KeyDraft { name: NAME.to_owned(), scopes: Scope::ALL.to_vec(), store_ids: None, expires_at: None };
    let failed = || Failure::of("the API key was not created");
    let operator = engine.tenants.operator(tenant_id, Auditor::OperatorCli).await;
    let made = engine.keys.create(&operator.map_err(failed())?, draft, None).await.map_err(failed())?;
    let credentials = Credentials {
        base_url: base_url.to_owned(),
        api_key: made.secret.map(|secret| secret.expose().to_owned()).unwrap_or_default(),
        memory_store_id,
        tenant_id,
    };
    keep_aside(&path)?;
    write(&path, &credentials)?;
    Ok((credentials, true))
}

/// Renames a file of credentials, if there is one. It is not deleted, because its key is valid again
/// if the former database is restored.
fn keep_aside(path: &Path) -> Result<()> {
    let free = (1..=MAX_ASIDE)
        .map(|number| path.with_extension(format!("{number}.json")))
        .find(|aside| !aside.exists());
    let Some(aside) = free else {
        let text = format!("{} cannot be renamed: there are too many others", path.display());
        return Err(Failure::new(text));
    };
    let renamed = if_there(fs::rename(path, &aside));
    if renamed.map_err(Failure::of(format_args!("{} cannot be renamed", path.display())))?.is_some() {
        tracing::warn!(
            file = %aside.display(),
            "the index does not know the credentials of before: they are kept in another file"
        );
    }
    Ok(())
}

/// Whether the index still knows the key, its tenant and the store.
async fn is_valid(index: &Index, credentials: &Credentials) -> Result<bool, IndexError> {
    let Ok(secret) = ApiKeySecret::parse(&credentials.api_key) else {
        return Ok(false);
    };
    let Some(found) = index.credentials.authenticate(&secret.sha256()).await? else {
        return Ok(false);
    };
    let is_of_tenant = found.tenant_id == credentials.tenant_id && !found.is_revoked;
    Ok(is_of_tenant && index.stores.find(credentials.tenant_id, credentials.memory_store_id).await?.is_some())
}

/// The tenant and the store, also if only the key of the credentials is unknown.
async fn find_or_create_store(
    engine: &Engine,
    index: &Index,
    known: Option<&Credentials>,
) -> Result<(TenantId, StoreId)> {
    let failed = || Failure::of("the index");
    let tenant_id = if let Some(tenant_id) = find_tenant(index, known).await.map_err(failed())? {
        tenant_id
    } else {
        let new = NewTenant { name: NAME.to_owned(), ..NewTenant::default() };
        let made = engine.tenants.create(new, Auditor::OperatorCli).await;
        made.map_err(Failure::of("the tenant was not created"))?.tenant_id
    };
    if let Some(store_id) = find_store(index, tenant_id, known).await.map_err(failed())? {
        return Ok((tenant_id, store_id));
    }
    let failed = || Failure::of("the memory store was not created");
    let draft = StoreDraft { name: NAME.to_owned(), ..StoreDraft::default() };
    let operator = engine.tenants.operator(tenant_id, Auditor::OperatorCli).await.map_err(failed())?;
    let store = engine.stores.create(&operator, draft, None).await.map_err(failed())?;
    Ok((tenant_id, store.store_id))
}

/// The tenant that the file names; else the index's tenant of this name, or its only one.
async fn find_tenant(index: &Index, known: Option<&Credentials>) -> Result<Option<TenantId>, IndexError> {
    let is_there = |tenant: &Tenant| tenant.status != TenantStatus::Deleting;
    if let Some(known) = known
        && index.tenants.find(known.tenant_id).await?.is_some_and(|tenant| is_there(&tenant))
    {
        return Ok(Some(known.tenant_id));
    }
    let mut tenants = index.tenants.list(None, None, MAX_LOOKED_AT).await?;
    tenants.retain(is_there);
    let found = only_or_named(&tenants, |tenant| &tenant.name);
    if let Some(tenant) = found {
        tracing::warn!(tenant.id = %tenant.tenant_id, "the index has a tenant that no file names: it is used");
    }
    Ok(found.map(|tenant| tenant.tenant_id))
}

/// The store that the file names; else the tenant's store of this name, or its only one.
async fn find_store(
    index: &Index,
    tenant_id: TenantId,
    known: Option<&Credentials>,
) -> Result<Option<StoreId>, IndexError> {
    let known = known.filter(|known| known.tenant_id == tenant_id);
    if let Some(known) = known
        && index.stores.find(tenant_id, known.memory_store_id).await?.is_some()
    {
        return Ok(Some(known.memory_store_id));
    }
    let listing = StoreListing { limit: MAX_LOOKED_AT, ..StoreListing::default() };
    let stores: Vec<Store> = index.stores.list(tenant_id, &listing).await?;
    let found = only_or_named(&stores, |store| &store.name);
    if let Some(store) = found {
        tracing::warn!(store.id = %store.store_id, "the index has a store that no file names: it is used");
    }
    Ok(found.map(|store| store.store_id))
}

/// The oldest item named [`NAME`], or the only item; `all` are newest first.
fn only_or_named<T>(all: &[T], name: impl Fn(&T) -> &str) -> Option<&T> {
    let named = all.iter().rev().find(|one| name(one) == NAME);
    match all {
        [only] => named.or(Some(only)),
        _ => named,
    }
}

/// The content of a JSON file; `None` if it is missing or has another format.
fn read(path: &Path) -> Result<Option<Credentials>> {
    let failed = Failure::of(format!("{} cannot be read", path.display()));
    let bytes = if_there(fs::read(path)).map_err(failed)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn write(path: &Path, credentials: &Credentials) -> Result<()> {
    let failed = || Failure::of(format!("{} cannot be written", path.display()));
    let text = serde_json::to_string_pretty(credentials).map_err(|error| Failure::new(error.to_string()))?;
    write_private_file(path, &format!("{text}\n")).map_err(failed())
}

fn welcome_text(credentials: &Credentials, path: &Path, list: &str) -> String {
    let Credentials { base_url, api_key, memory_store_id, tenant_id } = credentials;
    let curl = |input: &str| {
        format!(
            "curl -sS -w '\\n' {base_url}/v1/memory_stores/{memory_store_id}/tool_calls \\\n  \
             -H 'x-api-key: {api_key}' -H 'content-type: application/json' \\\n  -d '{input}'\n"
        )
    };
    let create = curl(r#"{"command":"create","path":"/memories/hello.md","file_text":"Remember me.\n"}"#);
    let view = curl(r#"{"command":"view","path":"/memories/hello.md"}"#);
    // Without a context, the commands do not find the server.
    let commands = match list {
        "" => String::new(),
        list => format!("Or use the commands, in another terminal:\n\n{list}"),
    };
    format!(
        "{}. Ctrl-C stops it.\n\n\
         tenant        {tenant_id}\n\
         memory store  {memory_store_id}\n\
         API key       {api_key}\n\n\
         The key is shown only now; it is kept in {}\n\
         Write a memory, then read it:\n\n{create}\n{view}\n{commands}",
        headline(credentials),
        path.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use keepsake_config::Sources;
    use keepsake_telemetry::Metrics;

    const URL: &str = "http://127.0.0.1:8080";

    /// Starts, and returns the credentials after checking them against the index.
    async fn started(folder: &Path, base_url: &str) -> Credentials {
        let sources = Sources { data_dir: Some(folder.to_owned()), ..Sources::default() };
        let settings = sources.merge().settings().unwrap();
        let backends = Backends::open(&settings, Metrics::default()).await.unwrap();
        start(&backends.engine(&settings), &backends, folder, base_url).await.unwrap();
        let credentials = read(&folder.join(CREDENTIALS_FILE)).unwrap().unwrap();
        assert!(is_valid(&backends.index, &credentials).await.unwrap());
        backends.index.close().await;
        credentials
    }

    #[tokio::test]
    async fn changed_address_or_lost_credentials_change_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let first = started(folder.path(), URL).await;
        let second = started(folder.path(), "http://127.0.0.1:9090").await;
        assert_eq!(second.base_url, "http://127.0.0.1:9090");
        assert!(first == Credentials { base_url: URL.to_owned(), ..second });
        let path = folder.path().join(CREDENTIALS_FILE);
        let other_key = ApiKeySecret::from_random([1; 32]).expose().to_owned();
        let unknown_key = serde_json::to_string(&Credentials { api_key: other_key, ..first.clone() });
        for broken in [None, Some("{\"api_key\":".to_owned()), unknown_key.ok()] {
            match broken {
                None => fs::remove_file(&path).unwrap(),
                Some(text) => fs::write(&path, text).unwrap(),
            }
            let next = started(folder.path(), URL).await;
            assert!(next.api_key != first.api_key);
            assert_eq!(next.tenant_id, first.tenant_id);
            assert_eq!(next.memory_store_id, first.memory_store_id);
        }
        assert!(!welcome_text(&first, &path, "").contains("in another terminal"));
    }

    #[tokio::test]
    async fn restored_index_is_used_and_a_deleted_one_recreated() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [folder, restored] = folders.each_ref().map(tempfile::TempDir::path);
        let first = started(folder, URL).await;
        fs::copy(folder.join("index.db"), restored.join("index.db")).unwrap();
        let second = started(restored, URL).await;
        assert_eq!(second.tenant_id, first.tenant_id);
        assert_eq!(second.memory_store_id, first.memory_store_id);
        assert!(second == started(restored, URL).await);
        fs::rename(folder.join("index.db"), folder.join("elsewhere.db")).unwrap();
        assert_ne!(started(folder, URL).await.tenant_id, first.tenant_id);
        // The credential of the index that comes back is still there.
        let aside = read(&folder.join("dev-credentials.1.json")).unwrap();
        assert!(aside == Some(first));
    }
}
