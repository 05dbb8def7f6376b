//! Who may issue tokens: `[[auth.issuers]]`, tables of the file alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::ValueKind;
use keepsake_tokens::{IssuerSettings, Issuers, KeySource, Subject};

use super::reader::{Reader, number, text, texts, truth};

/// The list of tables.
pub(super) const ISSUERS: &str = "auth.issuers";
/// The keys of each of them.
pub(super) const FIELDS: [&str; 9] = [
    "issuer",
    "audience",
    "jwks_url",
    "key_file",
    "allow_http",
    "tenant_claim",
    "scopes_claim",
    "tenants",
    "actor",
];
/// In the list of an issuer's tenants: any.
const ALL_TENANTS: &str = "*";
const DAY: Duration = Duration::from_hours(24);

/// Who is believed beside API keys.
#[derive(Debug, Clone)]
pub(crate) struct AuthSettings {
    /// Issuers of tokens.
    pub(crate) issuers: Arc<Issuers>,
    /// How long a key of the server's own signs tokens.
    pub(crate) token_key_period: Duration,
}

/// The name of an issuer's key.
pub(super) fn name_of(position: usize, field: &str) -> String {
    format!("{ISSUERS}[{position}].{field}")
}

pub(super) fn read_auth(reader: &mut Reader<'_>) -> Option<AuthSettings> {
    let days = reader.get("auth.token_key_days", number(1));
    let issuers = read_issuers(reader);
    Some(AuthSettings {
        issuers: Arc::new(issuers?),
        token_key_period: DAY.saturating_mul(u32::try_from(days?).unwrap_or(u32::MAX)),
    })
}

fn read_issuers(reader: &mut Reader<'_>) -> Option<Issuers> {
    let count = reader.count(ISSUERS);
    if count.is_none() && reader.is_set(ISSUERS) {
        reader.refuse(ISSUERS, "must be tables in a file: [[auth.issuers]]");
        return None;
    }
    let read: Vec<_> = (0..count.unwrap_or_default())
        .map(|position| read_issuer(reader, position))
        .collect();
    let settings = read.into_iter().collect::<Option<Vec<_>>>()?;
    let is_alone = settings.windows(2).all(|two| two[0].issuer == two[1].issuer);
    if !is_alone && refuse_unbound(reader, settings.len()) {
        return None;
    }
    match Issuers::new(settings) {
        Ok(issuers) => Some(issuers),
        Err(problems) => {
            for problem in problems {
                reader.refuse(&name_of(problem.position, problem.field), &problem.rule);
            }
            None
        }
    }
}

/// Refuses issuers that do not say whose tokens they may issue: where there are
/// several, one that is trusted for some tenants must not be for all by an
/// omission.
fn refuse_unbound(reader: &mut Reader<'_>, count: usize) -> bool {
    let unbound: Vec<_> = (0..count)
        .map(|position| name_of(position, "tenants"))
        .filter(|name| !reader.is_set(name))
        .collect();
    for name in &unbound {
        reader.require(
            name,
            "there are several issuers: set it to the tenants that this one may name, or to [\"*\"] for all",
        );
    }
    !unbound.is_empty()
}

fn read_issuer(reader: &mut Reader<'_>, position: usize) -> Option<IssuerSettings> {
    let name = |field| name_of(position, field);
    reader.require(&name("issuer"), "set it to the `iss` of its tokens");
    reader.require(
        &name("audience"),
        "set it to the `aud` of tokens that are for this server",
    );
    reader.require(&name("actor"), "set it to user or service_account");
    let owned = |value: &ValueKind| text(value).map(str::to_owned);
    let issuer = reader.get(&name("issuer"), owned);
    let audience = reader.get(&name("audience"), owned);
    let keys = read_key_source(reader, position);
    let tenant_claim = claim(reader, &name("tenant_claim"), "tenant");
    let scopes_claim = claim(reader, &name("scopes_claim"), "scope");
    let is_bound = reader.is_set(&name("tenants"));
    let tenants = reader.get(&name("tenants"), texts);
    let actor = reader.get(&name("actor"), |value| match text(value)? {
        "user" => Ok(Subject::User),
        "service_account" => Ok(Subject::ServiceAccount),
        _ => Err("must be user or service_account".to_owned()),
    });
    Some(IssuerSettings {
        issuer: issuer?,
        audience: audience?,
        keys: keys?,
        tenant_claim: tenant_claim?,
        scopes_claim: scopes_claim?,
        tenants: if is_bound { bound_to(tenants?) } else { None },
        actor: actor?,
    })
}

/// The tenants of a list; `*` alone stands for all.
fn bound_to(tenants: Vec<String>) -> Option<Vec<String>> {
    (tenants != [ALL_TENANTS]).then_some(tenants)
}

fn claim(reader: &mut Reader<'_>, name: &str, default: &str) -> Option<String> {
    if reader.is_set(name) {
        reader.get(name, |value| text(value).map(str::to_owned))
    } else {
        Some(default.to_owned())
    }
}

/// Where the keys are: behind a URL or in a file, never both.
fn read_key_source(reader: &mut Reader<'_>, position: usize) -> Option<KeySource> {
    let [url, file, allow_http] =
        ["jwks_url", "key_file", "allow_http"].map(|field| name_of(position, field));
    match (reader.is_set(&url), reader.is_set(&file)) {
        (true, true) => {
            reader.refuse(&file, &format!("is set beside {url}: keys come from one of them"));
            None
        }
        (false, false) => {
            reader.require(&url, &format!("set it, or {file}, to where its public keys are"));
            None
        }
        (true, false) => {
            let may_be_http = if reader.is_set(&allow_http) {
                reader.get(&allow_http, truth)
            } else {
                Some(false)
            };
            let url = reader.get(&url, |value| text(value).map(str::to_owned));
            Some(KeySource::Url {
                url: url?,
                allow_http: may_be_http?,
            })
        }
        (false, true) => {
            if reader.is_set(&allow_http) {
                reader.refuse(&allow_http, &format!("has a meaning beside {url} alone"));
            }
            let file = reader.get(&file, |value| text(value).map(PathBuf::from));
            file.map(KeySource::File)
        }
    }
}
