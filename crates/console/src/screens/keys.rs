//! API keys: created for teammates and agents, shown, revoked.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::Path;
use axum::http::{HeaderMap, header};
use keepsake_core::{Actor, StoreId, Timestamp};
use keepsake_engine::KeyDraft;
use keepsake_index::{ApiKey, Scope};

use super::stores::{days, stores_to_choose};
use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, Refusal, done, page};
use crate::request::{Caller, Form, OfKey, Pager};
use crate::sign_in::ConsoleOptions;
use crate::text::markup::{Markup, copy_button, id, store_link, time, time_or};

const PER_PAGE: u64 = 100;

const fn meaning(scope: Scope) -> &'static str {
    match scope {
        Scope::MemoryRead => "read memories, versions and sessions",
        Scope::MemoryWrite => "create, change and delete memories",
        Scope::StoresAdmin => "create, change and delete stores; redact versions",
        Scope::SessionsWrite => "create and end sessions",
        Scope::KeysAdmin => "create and revoke API keys",
        Scope::TenantAdmin => "erase data; read the audit",
    }
}

struct Key {
    href: String,
    id: Markup,
    name: String,
    scopes: Vec<&'static str>,
    stores: Option<Vec<Markup>>,
    created: Markup,
    used: Markup,
    expires: Markup,
    revoked: Option<Markup>,
    is_active: bool,
    is_own: bool,
}

impl Key {
    fn of(key: &ApiKey, caller: &Caller, now: Timestamp) -> Self {
        let full = key.api_key_id.to_string();
        let is_over = key.expires_at.is_some_and(|at| at <= now);
        Self {
            href: format!("/console/keys/{full}"),
            id: id(&full),
            name: key.name.clone(),
            scopes: key.scopes.iter().map(|scope| scope.name()).collect(),
            stores: key.store_ids.as_ref().map(|ids| ids.iter().copied().take(20).map(store_link).collect()),
            created: time(key.created_at, now),
            used: time_or(key.last_used_at, now, "never"),
            expires: time_or(key.expires_at, now, "never"),
            revoked: key.revoked_at.map(|at| time(at, now)),
            is_active: key.revoked_at.is_none() && !is_over,
            is_own: caller.principal.actor() == Some(&Actor::ApiKey(key.api_key_id)),
        }
    }
}

/// A scope that a new key can have.
struct Choice {
    name: &'static str,
    meaning: &'static str,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    frame: Frame,
    rows: Vec<Key>,
    pager: Pager,
    scopes: Vec<Choice>,
    stores: Vec<(String, String)>,
    must_choose_stores: bool,
    once: String,
}

/// `GET /console/keys`
pub(super) async fn list(caller: Caller) -> PageResult {
    let found = caller.engine.keys.list(&caller.principal, &caller.query.page(PER_PAGE)).await?;
    let stores =
        if caller.may(Scope::MemoryRead) { stores_to_choose(&caller, false).await? } else { Vec::new() };
    let now = caller.engine.now();
    let given = Scope::ALL.into_iter().filter(|scope| caller.may(*scope));
    let choices = given.map(|scope| Choice {
        name: scope.name(),
        meaning: meaning(scope),
        is_chosen: matches!(scope, Scope::MemoryRead | Scope::MemoryWrite),
    });
    page(&KeysPage {
        frame: caller.frame("API keys", Tab::Keys),
        rows: found.items.iter().map(|issued| Key::of(issued, &caller, now)).collect(),
        pager: caller.query.pager(found.next),
        scopes: choices.collect(),
        stores: stores.into_iter().map(|store| (store.store_id.to_string(), store.name)).collect(),
        must_choose_stores: caller.principal.is_bound_to_stores(),
        once: caller.engine.new_uuid().to_string(),
    })
}

#[derive(Template)]
#[template(path = "key_made.html")]
struct KeyMadePage {
    frame: Frame,
    key: Key,
    /// `None`: the form was sent twice, and the secret was shown the first time.
    secret: Option<(String, Markup)>,
    url: String,
    store: String,
}

/// `POST /console/keys`
pub(super) async fn create(
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    form: Form,
) -> PageResult {
    let fields = &form.fields;
    let scopes = fields.all("scope").map(|scope| scope.parse::<Scope>().map_err(Refusal::Invalid));
    let store_ids = fields.all("store").filter(|text| !text.is_empty());
    let store_ids = store_ids.map(|text| {
        let rule = |error| Refusal::Invalid(format!("`store` {error}"));
        text.parse::<StoreId>().map_err(rule)
    });
    let store_ids: Vec<_> = store_ids.collect::<Result<_, _>>()?;
    let now = form.caller.engine.now();
    let expires = days(fields.number("expires_days")?)?.filter(|secs| *secs > 0);
    let draft = KeyDraft {
        name: fields.text("name").trim().to_owned(),
        scopes: scopes.collect::<Result<_, _>>()?,
        store_ids: Some(store_ids.clone()).filter(|ids| !ids.is_empty()),
        expires_at: expires.map(|secs| now.plus(Duration::from_secs(secs)).to_rfc3339()),
    };
    let call = form.call()?;
    let made = form.caller.engine.keys.create(&form.caller.principal, draft, call).await?;
    let secret = made.secret.map(|secret| secret.expose().to_owned());
    page(&KeyMadePage {
        frame: form.caller.frame("A new API key", Tab::Keys),
        key: Key::of(&made.key, &form.caller, now),
        secret: secret.map(|secret| {
            let button = copy_button(&secret);
            (secret, button)
        }),
        url: url_of(&options, &headers),
        store: store_ids.first().map_or_else(|| "memstore_…".to_owned(), StoreId::to_string),
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
    key: Key,
    audit_href: Option<String>,
}

/// `GET /console/keys/{id}`
pub(super) async fn show(caller: Caller, Path(api_key_id): OfKey) -> PageResult {
    let key = caller.engine.keys.get(&caller.principal, api_key_id.0).await?;
    let audit = format!("/console/audit?actor={}", key.api_key_id);
    page(&KeyPage {
        frame: caller.frame(format!("API key {}", key.name), Tab::Keys),
        key: Key::of(&key, &caller, caller.engine.now()),
        audit_href: caller.may(Scope::TenantAdmin).then_some(audit),
    })
}

/// `POST /console/keys/{id}/revoke`
pub(super) async fn revoke(Path(api_key_id): OfKey, form: Form) -> PageResult {
    let revoked = form.caller.engine.keys.revoke(&form.caller.principal, api_key_id.0).await?;
    done(&format!("/console/keys/{}", revoked.api_key_id), Done::KeyRevoked)
}
