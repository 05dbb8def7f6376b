//! API keys: created for teammates and agents, shown, revoked.

use std::fmt::Display;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::http::{HeaderMap, StatusCode, header};
use keepsake_core::{Actor, ApiKeyId, StoreId, Timestamp};
use keepsake_engine::{KeyDraft, KeyWithSecret};
use keepsake_index::{ApiKey, Scope, Store};

use super::choices::StoreChoices;
use super::stores::{self, days, stores_to_choose};
use super::undo;
use crate::frame::{Done, Frame};
use crate::names::SharedNames;
use crate::page::{PageResult, Refusal, done, page, page_with, rule_of};
use crate::path::Path;
use crate::request::{Caller, Fields, Form, Pager, Person};
use crate::sign_in::ConsoleOptions;
use crate::text::markup::{self, Markup};

const PER_PAGE: u64 = 100;
/// Stores of a key in the list of keys, and on the key's page.
const STORES_IN_LIST: usize = 3;
const MAX_STORES: usize = 20;
/// Stands for the id of a store in the examples.
pub(crate) const NO_STORE: &str = "memstore_…";

pub(crate) const fn meaning(scope: Scope) -> &'static str {
    match scope {
        Scope::MemoryRead => "read memories, versions and sessions",
        Scope::MemoryWrite => "create, change and delete memories",
        Scope::StoresAdmin => "create, change and delete stores; redact versions",
        Scope::SessionsWrite => "create and end sessions",
        Scope::KeysAdmin => "create and revoke API keys",
        Scope::TenantAdmin => "erase data; read the audit",
    }
}

/// Whether a key works, as far as its own times say.
pub(crate) fn is_active(key: &ApiKey, now: Timestamp) -> bool {
    key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > now)
}

/// The first stores of a key, and the number of the others.
fn stores_of(ids: &[StoreId], stores: &[Store], most: usize, frame: &Frame) -> Markup {
    let shared = SharedNames::of_stores(stores);
    let link = |id: &StoreId| {
        let found = stores.iter().find(|store| store.store_id == *id);
        let name = found.map(|store| shared.text(&store.name, store.store_id));
        frame.store_link(*id, name.as_deref()).to_string()
    };
    let shown = ids.iter().take(most).map(link).collect::<Vec<_>>().join(", ");
    let others = ids.len().saturating_sub(most);
    Markup::trusted(if others > 0 { format!("{shown} and {others} more") } else { shown })
}

/// The key that the caller is signed in with.
fn own_key(caller: &Caller) -> Option<ApiKeyId> {
    match caller.principal.actor() {
        Some(Actor::ApiKey(api_key_id)) => Some(*api_key_id),
        _ => None,
    }
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    frame: Frame,
    keys: Vec<ApiKey>,
    own: Option<ApiKeyId>,
    pager: Pager,
    form: KeyForm,
    stores: Vec<Store>,
    /// Whether there may be older stores, which the form takes by name.
    has_older_stores: bool,
    must_choose_stores: bool,
}

impl KeysPage {
    async fn of(caller: &Caller, form: KeyForm) -> Result<Self, Refusal> {
        let found = caller.engine.keys.list(&caller.principal, &caller.query.page(PER_PAGE)).await?;
        let (stores, has_older_stores) = stores_of_form(caller).await?;
        Ok(Self {
            frame: caller.frame("API keys"),
            keys: found.items,
            own: own_key(caller),
            pager: caller.query.pager(found.next),
            form,
            has_older_stores,
            stores,
            must_choose_stores: caller.principal.is_bound_to_stores(),
        })
    }
}

/// The stores that the form for a new key offers, and whether there may be older ones, which it takes by name.
pub(crate) async fn stores_of_form(caller: &Caller) -> Result<(Vec<Store>, bool), Refusal> {
    if !caller.may(Scope::MemoryRead) {
        return Ok((Vec::new(), false));
    }
    let stores = stores_to_choose(caller, false).await?;
    let may_be_more = stores.len() as u64 >= stores::PER_PAGE;
    Ok((stores, may_be_more))
}

/// The form for a new key.
pub(crate) struct KeyForm {
    /// Those that the key can have.
    pub(crate) scopes: Vec<Scope>,
    /// The fields at first, or as they were sent.
    pub(crate) typed: Fields,
    /// Why no key was made.
    pub(crate) problem: Option<String>,
}

impl KeyForm {
    pub(crate) fn new<P: Person>(caller: &Caller<P>) -> Self {
        let mut typed = Fields::default();
        // Makes the creation idempotent.
        typed.add("once", caller.engine.new_uuid().to_string());
        for scope in [Scope::MemoryRead, Scope::MemoryWrite] {
            typed.add("scope", scope.name().to_owned());
        }
        let scopes = Scope::ALL.into_iter().filter(|scope| caller.may(*scope)).collect();
        Self { scopes, typed, problem: None }
    }

    /// The form as it was sent.
    pub(crate) fn refused<P: Person>(form: &Form<P>, refusal: Refusal) -> Result<Self, Refusal> {
        let problem = Some(rule_of(refusal)?);
        Ok(Self { typed: form.fields.clone(), problem, ..Self::new(&form.caller) })
    }

    pub(crate) fn is_chosen(&self, field: &str, value: impl Display) -> bool {
        let value = value.to_string();
        self.typed.all(field).any(|chosen| chosen == value)
    }
}

pub(super) async fn list(caller: Caller) -> PageResult {
    page(&KeysPage::of(&caller, KeyForm::new(&caller)).await?)
}

#[derive(Template)]
#[template(path = "key_made.html")]
struct KeyMadePage {
    frame: Frame,
    key: ApiKey,
    /// `None`: the form was sent twice, and the secret was shown the first time.
    secret: Option<String>,
    url: String,
    store: String,
    stores: Vec<Store>,
}

pub(super) async fn create(
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    form: Form,
) -> PageResult {
    let (made, store) = match create_for(&form).await {
        Ok(made) => made,
        Err(refusal) => {
            let again = KeysPage::of(&form, KeyForm::refused(&form, refusal)?).await?;
            return page_with(StatusCode::BAD_REQUEST, &again);
        }
    };
    page(&KeyMadePage {
        frame: form.frame("A new API key"),
        key: made.key,
        secret: made.secret.map(|secret| secret.expose().to_owned()),
        url: url_of(&options, &headers),
        store: store.map_or_else(|| NO_STORE.to_owned(), |store_id| store_id.to_string()),
        // Without names, the secret is shown all the same.
        stores: stores_to_choose(&form, false).await.unwrap_or_default(),
    })
}

/// Makes the key that a form describes, also with the stores that it has by name. Returns the first store, too.
pub(crate) async fn create_for(form: &Form) -> Result<(KeyWithSecret, Option<StoreId>), Refusal> {
    let mut draft = draft_of(&form.fields, form.engine.now())?;
    if let Some(text) = form.fields.filled("other_stores") {
        let stores = StoreChoices::of(form, false).await?;
        let others = stores.resolve_lines(form, "other_stores", text).await?;
        draft.store_ids.get_or_insert_default().extend(others);
    }
    let store = draft.store_ids.iter().flatten().next().copied();
    Ok((form.engine.keys.create(&form.principal, draft, form.call()?).await?, store))
}

/// The key that a form describes.
fn draft_of(fields: &Fields, now: Timestamp) -> Result<KeyDraft, Refusal> {
    let scopes = fields.all("scope").map(|scope| scope.parse::<Scope>().map_err(Refusal::Invalid));
    let scopes: Vec<_> = scopes.collect::<Result<_, _>>()?;
    if scopes.is_empty() {
        return Err(Refusal::invalid("choose at least one thing that the key may do"));
    }
    let store_ids = fields.all("store").filter(|text| !text.is_empty());
    let store_ids = store_ids.map(|text| {
        let rule = |error| Refusal::Invalid(format!("`store` {error}"));
        text.parse::<StoreId>().map_err(rule)
    });
    let store_ids: Vec<_> = store_ids.collect::<Result<_, _>>()?;
    let expires = days(fields.number("expires_days")?)?;
    if expires == Some(0) {
        return Err(Refusal::Invalid("`expires_days` must be at least 1".to_owned()));
    }
    Ok(KeyDraft {
        name: fields.text("name").trim().to_owned(),
        scopes,
        store_ids: Some(store_ids).filter(|ids| !ids.is_empty()),
        expires_at: expires.map(|secs| now.plus(Duration::from_secs(secs)).to_rfc3339()),
    })
}

/// The address at which clients reach this server.
pub(super) fn url_of(options: &ConsoleOptions, headers: &HeaderMap) -> String {
    if let Some(url) = &options.public_url {
        return url.to_string();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    format!("http://{}", host.unwrap_or("127.0.0.1:8080"))
}

#[derive(Template)]
#[template(path = "key.html")]
struct KeyPage {
    frame: Frame,
    key: ApiKey,
    own: Option<ApiKeyId>,
    may_see_audit: bool,
    stores: Vec<Store>,
    /// Stores with the pages that plan to take back the changes of the key.
    undo_hrefs: Vec<(Store, String)>,
}

pub(super) async fn show(caller: Caller, Path(api_key_id): Path<ApiKeyId>) -> PageResult {
    let key = caller.engine.keys.get(&caller.principal, api_key_id).await?;
    let may_read = caller.may(Scope::MemoryRead);
    let stores = if may_read { stores_to_choose(&caller, false).await? } else { Vec::new() };
    let is_of_key = |store: &Store| key.store_ids.as_ref().is_none_or(|ids| ids.contains(&store.store_id));
    let author = Actor::ApiKey(api_key_id);
    let undo_href =
        |store: &Store| undo::href_for(&caller, store.store_id, &author).map(|href| (store.clone(), href));
    let undo_hrefs = stores.iter().filter(|store| is_of_key(store)).filter_map(undo_href).collect();
    page(&KeyPage {
        frame: caller.frame(format!("API key {}", key.name)),
        key,
        stores,
        undo_hrefs,
        own: own_key(&caller),
        may_see_audit: caller.may(Scope::TenantAdmin),
    })
}

pub(super) async fn revoke(Path(api_key_id): Path<ApiKeyId>, form: Form) -> PageResult {
    let revoked = form.engine.keys.revoke(&form.principal, api_key_id).await?;
    done(&format!("/console/keys/{}", revoked.api_key_id), Done::KeyRevoked)
}
