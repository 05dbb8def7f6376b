//! The database of a command, and the operator API, called over HTTP or in this process on it.
//!
//! Both ways use the same routes, so requests and answers are the same.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use keepsake_client::{Client, Method, Query, Url, extended};
use keepsake_config::{Failure, IndexUrl, Settings, SourceArgs, cli::Result};
use keepsake_core::{ApiKeyId, TenantId};
use keepsake_engine::{Engine, EngineError};
use keepsake_index::{StoreFilter, StoreListing};
use keepsake_server::operator_call;
use serde_json::Value;

use crate::backends::{Backends, of_index};
use crate::cli::{PageArgs, TargetArgs};
use crate::data_dir;
use crate::failures::{class_of_status, of_client};
use crate::ids::{LIVE_API_KEY, MeantIds, candidates, several_named};
use crate::output::{Column, Printer, items_of, notice, text_of};

/// The variable with the operator's token, if `--token-file` is not given.
const TOKEN_VARIABLE: &str = "KEEPSAKE_OPERATOR_TOKEN";

const ID_PREFIX: &str = "wrkspc_";
/// Pages of a list that are searched for a name or the beginning of an id.
const MAX_PAGES: usize = 10_000;
const STORES_PER_PAGE: u32 = 1_000;
/// Some commands open the database twice.
static DEV_FOLDER_NAMED: Once = Once::new();

/// The configured database or, if no argument and no variable names one, that of `serve --dev`.
pub(super) struct CommandDatabase {
    pub(super) settings: Settings,
    /// The data folder, if the database is in one.
    folder: Option<PathBuf>,
    is_of_dev: bool,
}

impl CommandDatabase {
    /// Reads the configuration, and says where the database of `serve --dev` is if it is that one.
    pub(super) fn find(sources: SourceArgs) -> Result<Self> {
        let mut sources = sources.into_sources();
        let is_named = sources.file.is_some()
            || sources.data_dir.is_some()
            || sources.variables.iter().any(|(name, _)| name == "KEEPSAKE_INDEX_URL");
        // Without a home, the error of the configuration says how to name a database.
        if !is_named && let Ok(folder) = data_dir::default_folder() {
            let told = format!("using the database of `keepsake serve --dev` in {}", folder.display());
            DEV_FOLDER_NAMED.call_once(|| notice(&told));
            sources.data_dir = Some(folder);
        }
        let folder = sources.data_dir.clone();
        let settings = sources.merge().settings()?;
        Ok(Self { settings, folder, is_of_dev: !is_named })
    }

    /// Refuses a SQLite file that does not exist.
    pub(super) fn require_file(&self) -> Result<()> {
        match &self.settings.index.url {
            IndexUrl::Sqlite { file, .. } if !file.exists() => Err(Failure::not_found(format!(
                "there is no database: {} does not exist; --config, --data-dir or KEEPSAKE_INDEX_URL names another one",
                file.display()
            ))),
            IndexUrl::Sqlite { .. } | IndexUrl::Postgres(_) => Ok(()),
        }
    }

    /// An engine for one command. It has no requests to wait for, so callers only close the index.
    ///
    /// A configured SQLite file is created if it is missing.
    pub(super) async fn open(&self) -> Result<(Engine, Backends)> {
        if self.is_of_dev {
            self.require_file()?;
        }
        let backends = Box::pin(Backends::open_for_command(&self.settings, self.folder.as_deref())).await?;
        Ok((backends.engine(&self.settings), backends))
    }
}

pub(super) enum OperatorApi {
    /// The database, with the lock of its folder if it is a SQLite file.
    Database { engine: Engine, backends: Box<Backends> },
    /// A server's operator listener.
    Server(Client),
}

impl OperatorApi {
    /// Refuses a SQLite file that does not exist, unless the command may create it.
    async fn open(args: TargetArgs, may_create: bool) -> Result<Self> {
        let Some(url) = &args.server else {
            let database = CommandDatabase::find(args.sources)?;
            if !may_create {
                database.require_file()?;
            }
            let (engine, backends) = database.open().await?;
            let backends = Box::new(backends);
            return Ok(Self::Database { engine, backends });
        };
        let token = match &args.token_file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(Failure::of(format_args!("the token file {} cannot be read", file.display())))?,
            None => std::env::var(TOKEN_VARIABLE).map_err(|_| {
                Failure::usage(format!(
                    "--server needs the operator's token: --token-file or {TOKEN_VARIABLE}"
                ))
            })?,
        };
        if token.trim().is_empty() {
            return Err(Failure::usage("the operator's token is empty"));
        }
        let client = Client::of_operator(url, &token.into()).map_err(of_client)?;
        Ok(Self::Server(client))
    }

    /// Sends a request to a path below `/admin/v1`, which is given by its segments.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: Query<'_>,
        body: Option<&Value>,
    ) -> Result<Value> {
        match self {
            Self::Database { engine, .. } => {
                let place =
                    Url::parse("http://database").map_err(Failure::of("the request cannot be made"))?;
                let place = extended(&place, path, query);
                let path = match place.query() {
                    Some(query) => format!("{}?{query}", place.path()),
                    None => place.path().to_owned(),
                };
                let answer = operator_call(engine, method, &path, body).await;
                answer
                    .map_err(|error| Failure::refusal(class_of_status(error.status.as_u16()), error.message))
            }
            Self::Server(client) => client.send(method, path, query, body).await.map_err(of_client),
        }
    }

    /// As [`Self::call`]; a tenant in the path is given as [`Self::find_tenant`] takes it, and an API key by
    /// the beginning of its id or by its name.
    async fn call_of_tenant(
        &self,
        method: Method,
        path: &[&str],
        query: Query<'_>,
        body: Option<&Value>,
    ) -> Result<Value> {
        let [list @ ("tenants" | "tenant_deletions"), given, rest @ ..] = path else {
            return self.call(method, path, query, body).await;
        };
        let tenant = self.tenant_in(list, given).await?;
        let key;
        let mut path = vec![*list, tenant.as_str()];
        if let ["api_keys", beginning, rest @ ..] = rest {
            key = self.find_key(&tenant, beginning).await?;
            path.extend(["api_keys", key.as_str()]);
            path.extend(rest);
        } else {
            path.extend(rest);
        }
        self.call(method, &path, query, body).await
    }

    /// One page of a list; a tenant in the path is given as in [`Self::call_of_tenant`].
    pub(super) async fn page(&self, path: &[&str], filters: Query<'_>, page: &PageArgs) -> Result<Value> {
        let limit = page.limit.map(|limit| limit.to_string());
        let of_page = [("limit", limit.as_deref()), ("page", page.page.as_deref())];
        let query = [filters, &of_page].concat();
        self.call_of_tenant(Method::GET, path, &query, None).await
    }

    /// The id of the only tenant with this external id or name, or whose id begins so. A tenant that is
    /// being deleted leaves its name to another one. A whole id is taken as it is.
    pub(super) async fn find_tenant(&self, given: &str) -> Result<String> {
        self.tenant_in("tenants", given).await
    }

    /// As [`Self::find_tenant`]; in the list of deletions, the name is that of a tenant that is being deleted.
    async fn tenant_in(&self, list: &str, given: &str) -> Result<String> {
        if given.parse::<TenantId>().is_ok() {
            return Ok(given.to_owned());
        }
        let beginning = given.trim_end_matches('…');
        let mut external = None;
        let (mut named, mut leaving, mut begun) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        self.search(&["tenants"], |tenant| {
            let id = text_of(tenant, "id").to_owned();
            if tenant["external_id"] == given {
                external = Some(id);
            } else if tenant["name"] == given {
                let ids = if tenant["status"] == "deleting" { &mut leaving } else { &mut named };
                ids.insert(id);
            } else if beginning.len() > ID_PREFIX.len() && id.starts_with(beginning) {
                begun.insert(id);
            }
            external.is_some()
        })
        .await?;
        if let Some(id) = external {
            return Ok(id);
        }
        let is_of_leaving = named.is_empty() || (list == "tenant_deletions" && !leaving.is_empty());
        let named = if is_of_leaving { leaving } else { named };
        let found = if named.is_empty() { &begun } else { &named };
        match found.iter().collect::<Vec<_>>().as_slice() {
            [id] => Ok((*id).clone()),
            [] => Err(Failure::not_found(format!(
                "no tenant has the id, the name or the external id `{given}`; `keepsake tenant list` shows all"
            ))),
            several if named.is_empty() => Err(Failure::usage(candidates(beginning, several))),
            several => Err(Failure::usage(several_named("tenants", given, several))),
        }
    }

    /// The id of another tenant with the name of this one. Tenants that are being deleted do not count.
    pub(super) async fn namesake(&self, tenant: &Value) -> Result<Option<String>> {
        let mut namesake = None;
        self.search(&["tenants"], |other| {
            let is_other = other["name"] == tenant["name"] && other["id"] != tenant["id"];
            if is_other && other["status"] != "deleting" {
                namesake = Some(text_of(other, "id").to_owned());
            }
            namesake.is_some()
        })
        .await?;
        Ok(namesake)
    }

    /// The id of the only live API key of a tenant with this name, or of the only one whose id begins so. A whole
    /// id is taken as it is.
    async fn find_key(&self, tenant: &str, given: &str) -> Result<String> {
        if given.parse::<ApiKeyId>().is_ok() {
            return Ok(given.to_owned());
        }
        let mut found = MeantIds::default();
        self.search(&["tenants", tenant, "api_keys"], |key| {
            LIVE_API_KEY.add_if_meant(&mut found, given, key);
            false
        })
        .await?;
        LIVE_API_KEY.only_meant(&format!("keepsake key list --tenant {tenant}"), &found, given)
    }

    /// The ids and names of all memory stores of a tenant, which is given as [`Self::find_tenant`] takes it. Only the
    /// database has them.
    async fn stores(&self, tenant: &str) -> Result<Vec<(String, String)>> {
        let Self::Database { backends, .. } = self else {
            return Err(Failure::usage(
                "with --server, --store takes only the whole id of a store: memstore_…",
            ));
        };
        let tenant = self.find_tenant(tenant).await?;
        let tenant_id = tenant.parse::<TenantId>().map_err(Failure::of("the tenant's id"))?;
        let filter = StoreFilter { include_archived: true, ..StoreFilter::default() };
        let mut listing = StoreListing { filter, limit: STORES_PER_PAGE, ..StoreListing::default() };
        let mut stores = Vec::new();
        loop {
            let page = backends.index.stores.list(tenant_id, &listing).await;
            let page = page.map_err(of_index("the memory stores cannot be listed".to_owned()))?;
            let Some(last) = page.last() else {
                return Ok(stores);
            };
            listing.after = Some((last.created_at, last.store_id));
            stores.extend(page.into_iter().map(|store| (store.store_id.to_string(), store.name)));
        }
    }

    /// Passes the items of a list on, page by page, until one is the last that is wanted.
    async fn search(&self, list: &[&str], mut is_last: impl FnMut(&Value) -> bool) -> Result<()> {
        let mut page: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let query = [("limit", Some("100")), ("page", page.as_deref())];
            let found = self.call(Method::GET, list, &query, None).await?;
            let is_found = items_of(&found, "data").iter().any(&mut is_last);
            page = found["next_page"].as_str().map(str::to_owned);
            if is_found || page.is_none() {
                return Ok(());
            }
        }
        Err(Failure::usage("there are too many objects to look through: give the whole id"))
    }

    /// Refuses a master key other than that of the secrets of the server. A running server has opened them.
    pub(super) async fn require_master_key(&self) -> Result<()> {
        let Self::Database { engine, .. } = self else {
            return Ok(());
        };
        engine.check_secrets().await.map_err(|error| match error {
            EngineError::Index(error) => of_index("the server's secrets cannot be read".to_owned())(error),
            error => Failure::of("the server's secrets (secrets.master_key)")(error),
        })
    }

    pub(super) async fn close(self) {
        if let Self::Database { engine, backends } = self {
            // A requested run may have registered this process as a replica.
            engine.shut_down(Duration::ZERO).await;
            backends.index.close().await;
        }
    }
}

/// Opens the API for `work`, whose failure begins with `failed`. A SQLite file must exist.
pub(super) async fn with_api<T>(
    args: TargetArgs,
    failed: &str,
    work: impl AsyncFnOnce(&OperatorApi) -> Result<T>,
) -> Result<T> {
    with_opened(OperatorApi::open(args, false).await?, failed, work).await
}

/// As [`with_api`], with the open API.
async fn with_opened<T>(
    api: OperatorApi,
    failed: &str,
    work: impl AsyncFnOnce(&OperatorApi) -> Result<T>,
) -> Result<T> {
    let done = Box::pin(work(&api)).await;
    api.close().await;
    done.map_err(|failure| failure.within(failed))
}

/// Sends one request; returns what to print, and the printer for it. A failure begins
/// with `failed`.
pub(crate) async fn call(
    args: TargetArgs,
    failed: &str,
    method: Method,
    path: &[&str],
    query: Query<'_>,
    body: Option<Value>,
) -> Result<(Printer, Value)> {
    let printer = Printer::new(args.output.output);
    // Everything else is about what a database has.
    let makes_tenant = method == Method::POST && path == ["tenants"];
    let api = OperatorApi::open(args, makes_tenant).await?;
    let work = async |api: &OperatorApi| api.call_of_tenant(method, path, query, body.as_ref()).await;
    Ok((printer, with_opened(api, failed, work).await?))
}

/// The ids and names of all memory stores of a tenant: see [`OperatorApi::find_tenant`].
pub(crate) async fn stores_of(args: TargetArgs, tenant: &str) -> Result<Vec<(String, String)>> {
    let target = OperatorApi::open(args, false).await?;
    let stores = target.stores(tenant).await;
    target.close().await;
    stores
}

/// As [`call`], for an object of which these fields are printed.
pub(super) async fn show(args: TargetArgs, failed: &str, path: &[&str], fields: &[Column]) -> Result<()> {
    let (printer, object) = call(args, failed, Method::GET, path, &[], None).await?;
    printer.object(&object, fields)
}

/// As [`call`], for one page of a list, which is printed with these columns; `none`
/// describes an empty list.
pub(super) async fn list(
    args: TargetArgs,
    failed: &str,
    path: &[&str],
    filters: Query<'_>,
    page: PageArgs,
    (columns, none): (&[Column], &str),
) -> Result<()> {
    let printer = Printer::new(args.output.output);
    let work = async |api: &OperatorApi| api.page(path, filters, &page).await;
    printer.page(&with_api(args, failed, work).await?, columns, none)
}
