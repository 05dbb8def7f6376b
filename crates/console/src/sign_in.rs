//! Sign-in: the cookie, the forms to sign in and out, one-time links.
//!
//! The cookie replaces the header that a program sends. [`require_sign_in`] opens the cookie and
//! puts the credential into `authorization`, so that the API's authentication decides tenant,
//! scopes, stores, expiry and revocation at each request.

pub(crate) mod issuer;
mod links;

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keepsake_core::Timestamp;
use keepsake_core::api_key::ApiKeySecret;
use keepsake_engine::{Audience, Engine, EngineError, SignInIssuer, SignedIn};

use crate::frame::Frame;
use crate::next::{HOME, OPERATOR_HOME, or_home};
use crate::page::{PageResult, Refusal, page, page_with, see_other};
use crate::request::{Fields, Query, check_token, form_fields};
use crate::text::markup::encoded;
use crate::typed::{RefusedForm, TypedView};

pub use links::OneTimeLinks;

/// Over TLS, each cookie's name begins with this prefix: a browser takes such a cookie only from
/// this host, so that another site of the same domain cannot plant one.
const HOST_ONLY: &str = "__Host-";
/// Maximum number of cookies of one name that are tried.
const MAX_COOKIES: usize = 4;
/// Cookie of a tenant's people.
const COOKIE: &str = "keepsake_console";
/// Cookie of the operator; its name differs because all ports of a host share cookies.
const OPERATOR_COOKIE: &str = "keepsake_operator";
/// Cookie of the form that takes a credential.
const FORM_COOKIE: &str = "keepsake_sign_in";
/// Cookie of a sign-in that continues at the page of an issuer.
const ISSUER_COOKIE: &str = "keepsake_issuer";

#[derive(Debug, Clone, Default)]
pub struct ConsoleOptions {
    /// Browsers reach the server over TLS, whatever a proxy says.
    pub is_https: bool,
    /// The configured address at which clients reach the server.
    pub public_url: Option<std::sync::Arc<str>>,
    pub links: OneTimeLinks,
}

/// The token that the forms of this sign-in carry. In a response, it is for the refused form.
#[derive(Clone)]
pub struct FormToken(pub(crate) String);

impl std::fmt::Debug for FormToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FormToken(***)")
    }
}

/// When the sign-in of a request ends; its credential may end earlier.
#[derive(Debug, Clone, Copy)]
pub struct SignInEnd(pub Timestamp);

/// The content of a valid cookie.
struct Opened {
    /// The header that a program with the same credential sends.
    authorization: HeaderValue,
    form_token: FormToken,
    end: SignInEnd,
}

const fn cookie_of(audience: Audience) -> (&'static str, &'static str) {
    match audience {
        Audience::Tenant => (COOKIE, "/console"),
        Audience::Operator => (OPERATOR_COOKIE, "/console"),
        Audience::SignInForm => (FORM_COOKIE, "/console/sign-in"),
        Audience::AtIssuer => (ISSUER_COOKIE, "/console/sign-in"),
    }
}

/// Whether requests from other sites carry the cookie.
const fn same_site(audience: Audience) -> &'static str {
    match audience {
        Audience::Tenant | Audience::Operator | Audience::SignInForm => "Strict",
        // The browser returns from the issuer's site with this cookie.
        Audience::AtIssuer => "Lax",
    }
}

/// The values of an audience's cookies.
///
/// There may be several: without TLS, another site of the domain can plant a cookie that the
/// browser sends first.
fn cookies(headers: &HeaderMap, audience: Audience, is_secure: bool) -> impl Iterator<Item = &str> {
    let prefix = if is_secure { HOST_ONLY } else { "" };
    let name = cookie_of(audience).0;
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(';'));
    let values = pairs.filter_map(move |pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key.strip_prefix(prefix)? == name).then_some(value)
    });
    values.take(MAX_COOKIES)
}

fn set_cookie(response: &mut Response, audience: Audience, value: &str, is_secure: bool) {
    add_cookie(response, audience, value, audience.life().as_secs(), is_secure);
}

/// Removes the cookie with TLS and the cookie without TLS.
fn remove_cookie(response: &mut Response, audience: Audience) {
    for is_secure in [false, true] {
        add_cookie(response, audience, "", 0, is_secure);
    }
}

fn add_cookie(response: &mut Response, audience: Audience, value: &str, secs: u64, is_secure: bool) {
    let (name, path) = cookie_of(audience);
    let same_site = same_site(audience);
    let cookie = if is_secure {
        format!("{HOST_ONLY}{name}={value}; Path=/; Max-Age={secs}; HttpOnly; SameSite={same_site}; Secure")
    } else {
        format!("{name}={value}; Path={path}; Max-Age={secs}; HttpOnly; SameSite={same_site}")
    };
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Whether the browser uses TLS, as configured or as the proxy says.
fn is_secure(options: &ConsoleOptions, headers: &HeaderMap) -> bool {
    let proto = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    options.is_https || proto.is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"))
}

/// Serves a request of a tenant's person with the credential of its cookie.
pub async fn require_sign_in(State(engine): State<Engine>, request: Request, next: Next) -> Response {
    signed_in(&engine, Audience::Tenant, request, next).await
}

/// Serves a request of the operator with the token of its cookie.
pub async fn require_operator_sign_in(
    State(engine): State<Engine>,
    request: Request,
    next: Next,
) -> Response {
    signed_in(&engine, Audience::Operator, request, next).await
}

async fn signed_in(engine: &Engine, audience: Audience, mut request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let sign_in = sign_in_path(request.uri().path_and_query().map_or("", |path| path.as_str()));
    let refused = || {
        if is_read {
            see_other(&sign_in)
        } else {
            // A redirect would lose the typed text.
            Refusal::SignedOut.into_response()
        }
    };
    let is_secure = request
        .extensions()
        .get::<ConsoleOptions>()
        .is_some_and(|options| is_secure(options, request.headers()));
    let token;
    match opened(engine, audience, request.headers(), is_secure).await {
        Ok(Some(opened)) => {
            token = opened.form_token.clone();
            let headers = request.headers_mut();
            // Only the cookie identifies the caller.
            headers.remove("x-api-key");
            headers.insert(header::AUTHORIZATION, opened.authorization);
            request.extensions_mut().insert(opened.form_token);
            request.extensions_mut().insert(opened.end);
        }
        Ok(None) => return refused(),
        Err(error) => return Refusal::Engine(error).into_response(),
    }
    let mut response = next.run(request).await;
    if response.status() == axum::http::StatusCode::UNAUTHORIZED {
        // The credential has ended.
        if is_read {
            response = see_other(&format!("{sign_in}&ended=1"));
        }
        remove_cookie(&mut response, audience);
    } else {
        response.extensions_mut().insert(token);
    }
    response
}

/// `None`: the cookie is missing or no longer valid.
async fn opened(
    engine: &Engine,
    audience: Audience,
    headers: &HeaderMap,
    is_secure: bool,
) -> Result<Option<Opened>, EngineError> {
    let Some(signed_in) = open_any(engine, audience, headers, is_secure).await? else {
        return Ok(None);
    };
    let token = engine.sign_ins.form_token(audience, &signed_in).await?;
    let bearer = HeaderValue::try_from(format!("Bearer {}", signed_in.credential));
    Ok(bearer.ok().map(|mut authorization| {
        authorization.set_sensitive(true);
        Opened {
            authorization,
            form_token: FormToken(token),
            end: SignInEnd(signed_in.since.plus(audience.life())),
        }
    }))
}

/// The content of the first valid cookie of an audience.
async fn open_any(
    engine: &Engine,
    audience: Audience,
    headers: &HeaderMap,
    is_secure: bool,
) -> Result<Option<SignedIn>, EngineError> {
    for value in cookies(headers, audience, is_secure) {
        if let Some(signed_in) = engine.sign_ins.open(audience, value).await? {
            return Ok(Some(signed_in));
        }
    }
    Ok(None)
}

/// The sign-in form leads back to the page `wanted`.
fn sign_in_path(wanted: &str) -> String {
    format!("/console/sign-in?next={}", encoded(wanted))
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
    token: String,
    next: String,
    /// A page to continue on, for a person that another site sent here.
    is_return: bool,
    has_ended: bool,
    problem: Option<String>,
    is_operator: bool,
    /// Issuers at whose page a person can sign in.
    issuers: Vec<SignInIssuer>,
    /// All fields of the refused form; the form that takes a key sends them along.
    carried: Vec<(String, String)>,
    /// The text that the person typed into the refused form.
    typed: Option<TypedView>,
}

/// The sign-in form, with a new form token.
async fn form(
    engine: &Engine,
    options: &ConsoleOptions,
    headers: &HeaderMap,
    fields: &Fields,
    problem: Option<String>,
    is_operator: bool,
    refused: Option<&RefusedForm>,
) -> PageResult {
    let (signed_in, value) = engine.sign_ins.begin(Audience::SignInForm, "").await?;
    let home = if is_operator { OPERATOR_HOME } else { HOME };
    let next = or_home(fields.filled("next"), home);
    let template = SignInPage {
        frame: Frame::bare("Sign in"),
        token: engine.sign_ins.form_token(Audience::SignInForm, &signed_in).await?,
        is_return: fields.filled("next").is_some() && problem.is_none() && !fields.is_on("ended"),
        next: next.to_owned(),
        has_ended: fields.is_on("ended"),
        is_operator,
        issuers: if is_operator { Vec::new() } else { engine.sign_ins.issuers() },
        problem,
        typed: refused.and_then(|form| form.view(true)),
        carried: refused.filter(|form| form.has_text()).map(RefusedForm::carried).unwrap_or_default(),
    };
    let mut response = if template.problem.is_some() || refused.is_some() {
        page_with(axum::http::StatusCode::UNAUTHORIZED, &template)?
    } else {
        page(&template)?
    };
    let is_secure = is_secure(options, headers);
    set_cookie(&mut response, Audience::SignInForm, &value, is_secure);
    Ok(response)
}

/// `GET /console/sign-in`
pub(crate) async fn show(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    Query(fields): Query,
) -> PageResult {
    form(&engine, &options, &headers, &fields, None, false, None).await
}

/// `GET /console/sign-in` of the operator's listener
pub(crate) async fn show_operator(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    Query(fields): Query,
) -> PageResult {
    form(&engine, &options, &headers, &fields, None, true, None).await
}

/// The sign-in page after a refused form whose sign-in has ended. It carries the refused form.
pub async fn sign_in_again(
    engine: &Engine,
    options: &ConsoleOptions,
    headers: &HeaderMap,
    refused: &RefusedForm,
) -> Result<Response, Refusal> {
    let mut fields = Fields::default();
    fields.add("next", refused.page());
    fields.add("ended", "1".to_owned());
    form(engine, options, headers, &fields, None, false, Some(refused)).await
}

/// The fields of the sign-in form, once its token was checked.
async fn credential_fields(
    engine: &Engine,
    options: &ConsoleOptions,
    parts: &Parts,
) -> Result<Fields, Refusal> {
    let fields = form_fields(parts)?;
    let is_secure = is_secure(options, &parts.headers);
    let opened = open_any(engine, Audience::SignInForm, &parts.headers, is_secure).await?;
    let opened = opened.ok_or(Refusal::Forbidden(
        "the form is too old, or the browser keeps no cookies: open the sign-in page again",
    ))?;
    check_token(&fields, &engine.sign_ins.form_token(Audience::SignInForm, &opened).await?)?;
    Ok(fields)
}

/// `POST /console/sign-in`
pub(crate) async fn sign_in(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    parts: Parts,
) -> PageResult {
    let fields = credential_fields(&engine, &options, &parts).await?;
    let credential = fields.text("credential").trim();
    match check(&engine, credential).await {
        Ok(()) => {
            if let Some(refused) = RefusedForm::carried_by(&fields).filter(RefusedForm::has_text) {
                return give_back(&engine, &options, &parts.headers, credential, refused).await;
            }
            let next = or_home(fields.filled("next"), HOME);
            enter(&engine, &options, &parts.headers, Audience::Tenant, credential, next).await
        }
        Err(error) if is_final(&error) => {
            retry(&engine, &options, &parts, &fields, error.to_string(), false).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a credential is refused for good, and not only at the moment.
const fn is_final(error: &EngineError) -> bool {
    match error {
        EngineError::Unauthenticated(_) | EngineError::NotForSessions => true,
        EngineError::Token(why) => !why.is_transient(),
        _ => false,
    }
}

async fn retry(
    engine: &Engine,
    options: &ConsoleOptions,
    parts: &Parts,
    fields: &Fields,
    problem: String,
    is_operator: bool,
) -> PageResult {
    let refused = RefusedForm::carried_by(fields);
    form(engine, options, &parts.headers, fields, Some(problem), is_operator, refused.as_ref()).await
}

/// Checks that a credential is valid and for people.
async fn check(engine: &Engine, credential: &str) -> Result<(), EngineError> {
    if !credential.contains('.') {
        // Checked first: a text that is no key must not get into a header.
        ApiKeySecret::parse(credential).map_err(|_| {
            EngineError::Unauthenticated("this is neither an API key nor a token: paste it completely")
        })?;
    }
    let principal = engine.auth.authenticate(credential).await?;
    principal.require_no_session()
}

/// Starts a sign-in and redirects to a page.
async fn enter(
    engine: &Engine,
    options: &ConsoleOptions,
    headers: &HeaderMap,
    audience: Audience,
    credential: &str,
    next: &str,
) -> PageResult {
    let mut response = see_other(next);
    let is_secure = is_secure(options, headers);
    set_sign_in(engine, &mut response, audience, credential, is_secure).await?;
    Ok(response)
}

#[derive(Template)]
#[template(path = "given_back.html")]
struct GivenBackPage {
    frame: Frame,
    typed: Option<TypedView>,
}

/// Starts a sign-in and gives back the form that was refused because the last sign-in had ended.
async fn give_back(
    engine: &Engine,
    options: &ConsoleOptions,
    headers: &HeaderMap,
    credential: &str,
    refused: RefusedForm,
) -> PageResult {
    let (signed_in, value) = engine.sign_ins.begin(Audience::Tenant, credential).await?;
    let token = engine.sign_ins.form_token(Audience::Tenant, &signed_in).await?;
    let typed = refused.with_token(token).view(false);
    let mut response = page(&GivenBackPage { frame: Frame::bare("What you typed"), typed })?;
    set_cookie(&mut response, Audience::Tenant, &value, is_secure(options, headers));
    remove_cookie(&mut response, Audience::SignInForm);
    Ok(response)
}

async fn set_sign_in(
    engine: &Engine,
    response: &mut Response,
    audience: Audience,
    credential: &str,
    is_secure: bool,
) -> Result<(), EngineError> {
    let (_, value) = engine.sign_ins.begin(audience, credential).await?;
    set_cookie(response, audience, &value, is_secure);
    remove_cookie(response, Audience::SignInForm);
    Ok(())
}

/// Checks the operator's token, which only the server knows.
pub(crate) type TokenCheck = std::sync::Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// `POST /console/sign-in` of the operator's listener
pub(crate) async fn sign_in_operator(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    Extension(is_token): Extension<TokenCheck>,
    parts: Parts,
) -> PageResult {
    let fields = credential_fields(&engine, &options, &parts).await?;
    let token = fields.text("credential").trim();
    if !is_token(token) {
        let problem = "this is not the operator's token".to_owned();
        return retry(&engine, &options, &parts, &fields, problem, true).await;
    }
    let next = or_home(fields.filled("next"), OPERATOR_HOME);
    enter(&engine, &options, &parts.headers, Audience::Operator, token, next).await
}

#[derive(Template)]
#[template(path = "link_used.html")]
struct LinkUsedPage {
    frame: Frame,
}

/// `GET /console/sign-in/once`
pub(crate) async fn once(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    Query(fields): Query,
) -> PageResult {
    let credential = options.links.take(fields.text("token"), engine.now());
    let Some(credential) = credential else {
        let frame = Frame::bare("The link was used");
        return page_with(axum::http::StatusCode::GONE, &LinkUsedPage { frame });
    };
    check(&engine, &credential).await?;
    enter(&engine, &options, &headers, Audience::Tenant, &credential, HOME).await
}

/// `POST /console/sign-out`
pub(crate) async fn sign_out(form: crate::request::Form) -> PageResult {
    drop(form);
    Ok(left(Audience::Tenant))
}

/// Ends a sign-in by removing its cookie; the server keeps nothing of a sign-in.
pub(crate) fn left(audience: Audience) -> Response {
    let mut response = see_other("/console/sign-in");
    remove_cookie(&mut response, audience);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_secure_behind_tls() {
        let https = ConsoleOptions { is_https: true, ..ConsoleOptions::default() };
        let mut headers = HeaderMap::new();
        assert!(is_secure(&https, &headers) && !is_secure(&ConsoleOptions::default(), &headers));
        headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        assert!(is_secure(&ConsoleOptions::default(), &headers));
    }

    #[test]
    fn cookies_are_limited_to_the_console() {
        let mut response = Response::default();
        set_cookie(&mut response, Audience::Tenant, "v", true);
        set_cookie(&mut response, Audience::AtIssuer, "v", false);
        remove_cookie(&mut response, Audience::Tenant);
        let cookies: Vec<_> = response.headers().get_all(header::SET_COOKIE).iter().collect();
        assert_eq!(
            cookies,
            [
                "__Host-keepsake_console=v; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure",
                "keepsake_issuer=v; Path=/console/sign-in; Max-Age=600; HttpOnly; SameSite=Lax",
                "keepsake_console=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict",
                "__Host-keepsake_console=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure",
            ]
        );
    }

    #[test]
    fn cookies_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; keepsake_console=x=y; b=2"));
        headers.append(
            header::COOKIE,
            HeaderValue::from_static("keepsake_operator=z; keepsake_console=2; __Host-keepsake_console=3"),
        );
        let values = |audience, is_secure| cookies(&headers, audience, is_secure).collect::<Vec<_>>();
        assert_eq!(values(Audience::Tenant, false), ["x=y", "2"]);
        assert_eq!(values(Audience::Tenant, true), ["3"]);
        assert_eq!(values(Audience::Operator, false), ["z"]);
        assert!(values(Audience::AtIssuer, false).is_empty());
    }
}
