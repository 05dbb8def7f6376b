//! An OpenID provider: discovery, a page that signs everybody in, and tokens.
//!
//! It checks clients, redirect URIs, codes and PKCE as the specifications say,
//! and each code is redeemed once. A test changes the claims of its tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::issuer::{IssuerKey, encode, jwks};
use crate::{listen, locked, run, serve};

pub const CLIENT_ID: &str = "keepsake-console";
/// Its secret, with letters that are encoded on the way.
pub const CLIENT_SECRET: &str = "a secret of the client: 100%";
const KEY_ID: &str = "provider";

/// How a provider treats the next sign-ins.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// Claims that replace the usual ones; null removes one.
    pub id_token: Value,
    pub access_token: Value,
    /// An error in place of a code.
    pub denies_with: Option<&'static str>,
    pub is_down: bool,
    pub has_opaque_tokens: bool,
    /// Fields of the discovery document that replace the usual ones.
    pub discovery: Value,
    pub accepts_codes_again: bool,
}

/// A provider over HTTP on a free loopback port.
#[derive(Debug)]
pub struct Provider {
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    url: String,
    key: IssuerKey,
    claims: Value,
    redirect_uri: Mutex<String>,
    behaviour: Mutex<Behaviour>,
    codes: Mutex<HashMap<String, Code>>,
}

#[derive(Debug, Clone)]
struct Code {
    challenge: String,
    nonce: String,
    audience: Option<String>,
}

impl Provider {
    /// Starts a provider whose tokens have these claims, besides the usual ones.
    pub async fn start(claims: Value) -> Self {
        let (listener, url) = listen().await;
        let shared = Arc::new(Shared {
            url,
            key: IssuerKey::p256(),
            claims,
            redirect_uri: Mutex::default(),
            behaviour: Mutex::default(),
            codes: Mutex::default(),
        });
        run::remember(CLIENT_SECRET, "a client's secret");
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/jwks", get(keys))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(Arc::clone(&shared));
        Self { shared, _serving: serve(listener, router) }
    }

    /// Its URL, which is its name as an issuer.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Registers the only URL to which it sends browsers back.
    pub fn register(&self, redirect_uri: String) {
        *locked(&self.shared.redirect_uri) = redirect_uri;
    }

    pub fn behave(&self, behaviour: Behaviour) {
        *locked(&self.shared.behaviour) = behaviour;
    }
}

/// Replaces claims; null removes one.
fn merge(into: &mut Value, changes: &Value) {
    let Some(changes) = changes.as_object() else { return };
    for (name, value) in changes {
        if value.is_null() {
            into.as_object_mut().expect("no object").remove(name);
        } else {
            into[name] = value.clone();
        }
    }
}

async fn discovery(State(shared): State<Arc<Shared>>) -> Response {
    let behaviour = locked(&shared.behaviour).clone();
    if behaviour.is_down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let url = &shared.url;
    let mut document = json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "jwks_uri": format!("{url}/jwks"),
        "authorization_response_iss_parameter_supported": true,
    });
    merge(&mut document, &behaviour.discovery);
    Json(document).into_response()
}

async fn keys(State(shared): State<Arc<Shared>>) -> String {
    jwks(&[(KEY_ID, &shared.key)])
}

fn fields(text: &str) -> HashMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// Signs the person in without a question and sends the browser back.
async fn authorize(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let fields = fields(&query.unwrap_or_default());
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    let redirect_uri = locked(&shared.redirect_uri).clone();
    let is_good = field("client_id") == CLIENT_ID
        && field("redirect_uri") == redirect_uri
        && field("response_type") == "code"
        && field("code_challenge_method") == "S256"
        && field("scope").split(' ').any(|scope| scope == "openid");
    if !is_good {
        return (StatusCode::BAD_REQUEST, format!("bad request: {fields:?}")).into_response();
    }
    let mut answer = form_urlencoded::Serializer::new(String::new());
    answer.append_pair("state", field("state")).append_pair("iss", &shared.url);
    let refusal = locked(&shared.behaviour).denies_with;
    if let Some(error) = refusal {
        answer.append_pair("error", error).append_pair("error_description", "<b>no</b>");
    } else {
        let code = random();
        run::remember(&code, "a code");
        answer.append_pair("code", &code);
        let issued = Code {
            challenge: field("code_challenge").to_owned(),
            nonce: field("nonce").to_owned(),
            audience: fields.get("audience").cloned(),
        };
        locked(&shared.codes).insert(code, issued);
    }
    let location = format!("{redirect_uri}?{}", answer.finish());
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

fn random() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn refusal(code: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({"error": code}))).into_response()
}

/// Redeems a code, once unless the behaviour says otherwise.
async fn token(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> Response {
    let fields = fields(&body);
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encoded(CLIENT_ID), encoded(CLIENT_SECRET));
    let basic = format!("Basic {}", STANDARD.encode(pair));
    let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let is_in_body = field("client_id") == CLIENT_ID && field("client_secret") == CLIENT_SECRET;
    if sent != Some(basic.as_bytes()) && !is_in_body {
        return refusal("invalid_client");
    }
    if field("grant_type") != "authorization_code" {
        return refusal("unsupported_grant_type");
    }
    let accepts_codes_again = locked(&shared.behaviour).accepts_codes_again;
    let code = if accepts_codes_again {
        locked(&shared.codes).get(field("code")).cloned()
    } else {
        locked(&shared.codes).remove(field("code"))
    };
    let Some(code) = code else { return refusal("invalid_grant") };
    let hash = encode(digest(&SHA256, field("code_verifier").as_bytes()).as_ref());
    if hash != code.challenge || field("redirect_uri") != *locked(&shared.redirect_uri) {
        return refusal("invalid_grant");
    }
    let behaviour = locked(&shared.behaviour).clone();
    let token = |own: Value, changes: &Value| {
        let mut claims = json!({"iss": shared.url});
        merge(&mut claims, &shared.claims);
        merge(&mut claims, &own);
        merge(&mut claims, changes);
        let token = shared.key.token(KEY_ID, &claims);
        run::remember(&token, "a token");
        token
    };
    let id_token = token(json!({"aud": CLIENT_ID, "nonce": code.nonce}), &behaviour.id_token);
    let access_token = if behaviour.has_opaque_tokens {
        random()
    } else {
        token(json!({"aud": code.audience}), &behaviour.access_token)
    };
    Json(json!({"token_type": "Bearer", "id_token": id_token, "access_token": access_token})).into_response()
}
