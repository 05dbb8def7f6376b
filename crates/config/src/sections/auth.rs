//! `[[auth.issuers]]`, tables that only a file can hold.

use keepsake_tokens::{ClientSettings, IssuerSettings, Issuers, KeySource, Subject};
use secrecy::SecretString;

use crate::checks::{boolean, http_url, one_of, owned, texts};
use crate::reader::{HIDDEN, Reader, quoted};

pub(crate) const ISSUERS: &str = "auth.issuers";
/// The table of an issuer for sign-ins to the console.
pub(crate) const CONSOLE: &str = "console";
/// The path of the console to which an issuer sends browsers back.
const CALLBACK: &str = "/console/sign-in/callback";
/// As the only item of an issuer's tenants: any tenant.
const ALL_TENANTS: &str = "*";

fn key_of(position: usize, field: &str) -> String {
    format!("{ISSUERS}[{position}].{field}")
}

pub(super) fn read_issuers(reader: &mut Reader, public_url: Option<&str>) -> Option<Issuers> {
    let Some(count) = reader.tables(ISSUERS) else {
        reader.refuse(ISSUERS, "must be tables in a file: [[auth.issuers]]");
        return None;
    };
    let read: Vec<_> = (0..count).map(|position| read_issuer(reader, position, public_url)).collect();
    let settings = read.into_iter().collect::<Option<Vec<_>>>()?;
    let is_one_issuer = settings.windows(2).all(|two| two[0].issuer == two[1].issuer);
    if !is_one_issuer && !require_tenants(reader, count) {
        return None;
    }
    match Issuers::new(settings) {
        Ok(issuers) => Some(issuers),
        Err(problems) => {
            for problem in problems {
                reader.refuse(&key_of(problem.position, problem.field), &problem.rule);
            }
            None
        }
    }
}

/// Requires each of several issuers to list its tenants, so that an omission does not let
/// one issuer name every tenant.
fn require_tenants(reader: &mut Reader, count: usize) -> bool {
    let keys: Vec<_> = (0..count).map(|position| key_of(position, "tenants")).collect();
    for key in &keys {
        reader.require(
            key,
            "there are several issuers: set it to the tenants that this one may name, or to [\"*\"] for all",
        );
    }
    keys.iter().all(|key| reader.is_set(key))
}

fn read_issuer(reader: &mut Reader, position: usize, public_url: Option<&str>) -> Option<IssuerSettings> {
    let key = |field| key_of(position, field);
    let required = [
        ("issuer", "set it to the `iss` of its tokens"),
        ("audience", "set it to the `aud` of tokens for this server"),
        ("actor", "set it to user or service_account"),
    ];
    for (field, advice) in required {
        reader.require(&key(field), advice);
    }
    let issuer = reader.optional(&key("issuer"), owned);
    let audience = reader.optional(&key("audience"), owned);
    let keys = read_key_source(reader, position);
    let tenant_claim = claim(reader, &key("tenant_claim"), "tenant");
    let scopes_claim = claim(reader, &key("scopes_claim"), "scope");
    let tenants = reader.optional(&key("tenants"), texts);
    let subjects = [("user", Subject::User), ("service_account", Subject::ServiceAccount)];
    let actor = reader.optional(&key("actor"), one_of(&subjects));
    let console = if reader.is_set(&key(CONSOLE)) {
        Some(read_console(reader, &key(CONSOLE), public_url)?)
    } else {
        None
    };
    Some(IssuerSettings {
        issuer: issuer?,
        audience: audience?,
        keys: keys?,
        tenant_claim,
        scopes_claim,
        tenants: tenants.filter(|tenants| *tenants != [ALL_TENANTS]),
        actor: actor?,
        console,
    })
}

/// How people sign in to the console at an issuer's page.
fn read_console(reader: &mut Reader, table: &str, public_url: Option<&str>) -> Option<ClientSettings> {
    let key = |field| format!("{table}.{field}");
    reader.require(
        "server.public_url",
        &format!("set it to where browsers reach the server: {table} sends them to its issuer and back"),
    );
    reader.require(&key("client_id"), "set it to the name that the issuer has for this server");
    let client_id = reader.optional(&key("client_id"), owned::<String>);
    let client_secret = reader.secret_or_file(&key("client_secret"), "client secret", |text| {
        if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(SecretString::from(text)) }
    });
    let name = reader.optional(&key("name"), owned::<String>);
    let scopes = reader.optional(&key("scopes"), texts);
    Some(ClientSettings {
        name,
        client_id: client_id?,
        client_secret,
        scopes: scopes.unwrap_or_default(),
        redirect_uri: format!("{}{CALLBACK}", public_url?),
    })
}

/// Reads a claim; its default is not printed with the issuer.
fn claim(reader: &mut Reader, key: &str, default: &str) -> String {
    reader.optional(key, owned).unwrap_or_else(|| default.to_owned())
}

/// The source of the public keys: a URL or a file, not both.
fn read_key_source(reader: &mut Reader, position: usize) -> Option<KeySource> {
    let [url_key, file_key, http_key] =
        ["jwks_url", "key_file", "allow_http"].map(|field| key_of(position, field));
    // The text may contain credentials, so only a plain URL is printed.
    let url = reader.read(&url_key, None, owned::<String>, |value, _| {
        quoted(http_url(value).as_deref().unwrap_or(HIDDEN))
    });
    let file = reader.optional(&file_key, owned::<String>);
    let allow_http = reader.optional(&http_key, boolean);
    match (reader.is_set(&url_key), reader.is_set(&file_key)) {
        (true, true) => {
            reader.refuse(&file_key, &format!("is set, and so is {url_key}: set one of them"));
            None
        }
        (false, false) => {
            reader.require(&url_key, &format!("set it, or {file_key}, to where its public keys are"));
            None
        }
        (true, false) => Some(KeySource::Url { url: url?, allow_http: allow_http.unwrap_or_default() }),
        (false, true) => {
            if reader.is_set(&http_key) {
                reader.refuse(&http_key, &format!("is allowed only together with {url_key}"));
            }
            file.map(|file| KeySource::File(file.into()))
        }
    }
}
