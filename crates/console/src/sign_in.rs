//! Sign-in: the cookie, the forms to sign in and out, one-time links.
//!
//! The cookie replaces the header that a program sends. [`require_sign_in`] opens the cookie and
//! puts the credential into `authorization`, so that the API's authentication decides tenant,
//! scopes, stores, expiry and revocation at each request.

pub(crate) mod issuer;
mod links;

use std::ops::Deref;

use askama::Template;
use axum::Extension;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keepsake_core::Timestamp;
use keepsake_core::api_key::ApiKeySecret;
use keepsake_engine::{Audience, Engine, EngineError, PersonSignIn, SignInIssuer};

use crate::frame::{Done, Frame};
use crate::next::{HOME, OPERATOR_HOME, or_home};
use crate::notice::Notice;
use crate::page::{IsPage, PageResult, Refusal, page, page_with, see_other, sentence};
use crate::request::{Fields, Form, Person, check_token, form_fields};
use crate::text::markup::encoded;
use crate::typed::RefusedForm;

pub use links::OneTimeLinks;

/// Over TLS, each cookie's name begins with this prefix: a browser takes such a cookie only from
/// this host, so that another site of the same domain cannot plant one.
const HOST_ONLY: &str = "__Host-";
/// Maximum number of cookies of one name that are tried.
const MAX_COOKIES: usize = 4;
/// Cookie with the message that the next page shows.
const NOTICE: Cookie = Cookie { name: "keepsake_notice", path: "/console", same_site: STRICT };
/// How long a message waits for its page.
const NOTICE_SECS: u64 = 60;
const STRICT: &str = "Strict";
/// Field of the sign-in form: an action was refused because the last sign-in had ended.
const NOT_DONE: &str = "not_done";
/// Field of the sign-in page's address after a sign-out.
const SIGNED_OUT: &str = "signed_out";

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
struct CookieContent {
    /// The header that a program with the same credential sends.
    authorization: HeaderValue,
    form_token: FormToken,
    end: SignInEnd,
}

struct Cookie {
    name: &'static str,
    path: &'static str,
    /// Whether requests from other sites carry it.
    same_site: &'static str,
}

const fn cookie_of(audience: Audience) -> Cookie {
    let (name, path, same_site) = match audience {
        Audience::Tenant => ("keepsake_console", "/console", STRICT),
        // The name differs because all ports of a host share cookies.
        Audience::Operator => ("keepsake_operator", "/console", STRICT),
        Audience::SignInForm => ("keepsake_sign_in", "/console/sign-in", STRICT),
        // The browser returns from the issuer's site with this cookie.
        Audience::AtIssuer => ("keepsake_issuer", "/console/sign-in", "Lax"),
    };
    Cookie { name, path, same_site }
}

/// The values of an audience's cookies.
fn cookies(headers: &HeaderMap, audience: Audience, is_secure: bool) -> impl Iterator<Item = &str> {
    cookies_named(headers, cookie_of(audience).name, is_secure)
}

/// The values of the cookies of a name.
///
/// There may be several: without TLS, another site of the domain can plant a cookie that the
/// browser sends first.
fn cookies_named<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
    is_secure: bool,
) -> impl Iterator<Item = &'a str> {
    let prefix = if is_secure { HOST_ONLY } else { "" };
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(';'));
    let values = pairs.filter_map(move |pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key.strip_prefix(prefix)? == name).then_some(value)
    });
    values.take(MAX_COOKIES)
}

fn set_cookie(response: &mut Response, audience: Audience, value: &str, is_secure: bool) {
    add_cookie(response, &cookie_of(audience), value, audience.life().as_secs(), is_secure);
}

/// Removes the cookie with TLS and the cookie without TLS.
fn remove_cookie(response: &mut Response, audience: Audience) {
    for is_secure in [false, true] {
        add_cookie(response, &cookie_of(audience), "", 0, is_secure);
    }
}

fn add_cookie(
    response: &mut Response,
    Cookie { name, path, same_site }: &Cookie,
    value: &str,
    secs: u64,
    is_secure: bool,
) {
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

/// Serves a request of a tenant's person, or of the operator, with the credential of its cookie.
pub async fn require_sign_in(
    State((engine, audience)): State<(Engine, Audience)>,
    mut request: Request,
    next: Next,
) -> Response {
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
    let options = request.extensions().get().cloned().unwrap_or_default();
    let visit = Visit::new(&engine, &options, request.headers());
    let notice = is_read.then(|| visit.notice(request.uri().path())).flatten();
    if let Some(notice) = notice.clone() {
        request.extensions_mut().insert(notice);
    }
    let token;
    match visit.opened(audience).await {
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
    if response.status() == StatusCode::UNAUTHORIZED {
        // The credential has ended.
        if is_read {
            response = see_other(&format!("{sign_in}&ended=1"));
        }
        remove_cookie(&mut response, audience);
    } else {
        response.extensions_mut().insert(token);
    }
    // The page has shown its message; an action sends the message of the next page.
    let is_shown = notice.is_some() && response.extensions().get::<IsPage>().is_some();
    if let Some(next) = response.extensions_mut().remove::<Notice>() {
        visit.set_notice(&mut response, &next.to_cookie(), NOTICE_SECS);
    } else if is_shown {
        visit.set_notice(&mut response, "", 0);
    }
    response
}

/// What a request brings that needs no sign-in yet.
pub(crate) struct Visit {
    engine: Engine,
    links: OneTimeLinks,
    headers: HeaderMap,
    is_secure: bool,
    /// The fields of the address.
    query: Fields,
}

impl FromRequestParts<Engine> for Visit {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, engine: &Engine) -> Result<Self, Refusal> {
        let options = parts.extensions.get().cloned().unwrap_or_default();
        Ok(Self { query: Fields::of_query(parts), ..Self::new(engine, &options, &parts.headers) })
    }
}

impl Visit {
    fn new(engine: &Engine, options: &ConsoleOptions, headers: &HeaderMap) -> Self {
        Self {
            engine: engine.clone(),
            links: options.links.clone(),
            is_secure: is_secure(options, headers),
            headers: headers.clone(),
            query: Fields::default(),
        }
    }

    fn cookies(&self, audience: Audience) -> impl Iterator<Item = &str> {
        cookies(&self.headers, audience, self.is_secure)
    }

    /// The message for the page at `path`.
    fn notice(&self, path: &str) -> Option<Notice> {
        let mut values = cookies_named(&self.headers, NOTICE.name, self.is_secure);
        values.find_map(|value| Notice::of_cookie(value, path))
    }

    fn set_notice(&self, response: &mut Response, value: &str, secs: u64) {
        add_cookie(response, &NOTICE, value, secs, self.is_secure);
    }

    /// `None`: the cookie is missing or no longer valid.
    async fn opened(&self, audience: Audience) -> Result<Option<CookieContent>, EngineError> {
        let Some(signed_in) = self.open(audience).await? else {
            return Ok(None);
        };
        let token = self.engine.sign_ins.form_token(audience, &signed_in).await?;
        let bearer = HeaderValue::try_from(format!("Bearer {}", signed_in.credential));
        Ok(bearer.ok().map(|mut authorization| {
            authorization.set_sensitive(true);
            CookieContent {
                authorization,
                form_token: FormToken(token),
                end: SignInEnd(signed_in.since.plus(audience.life())),
            }
        }))
    }

    /// The content of the first valid cookie of an audience.
    async fn open(&self, audience: Audience) -> Result<Option<PersonSignIn>, EngineError> {
        for value in self.cookies(audience) {
            if let Some(signed_in) = self.engine.sign_ins.open(audience, value).await? {
                return Ok(Some(signed_in));
            }
        }
        Ok(None)
    }

    /// Starts a sign-in.
    async fn begin(
        &self,
        response: &mut Response,
        audience: Audience,
        credential: &str,
    ) -> Result<(), EngineError> {
        let (_, value) = self.engine.sign_ins.begin(audience, credential).await?;
        self.set_sign_in(response, audience, &value);
        Ok(())
    }

    /// The cookie of a sign-in takes the place of the form's.
    fn set_sign_in(&self, response: &mut Response, audience: Audience, value: &str) {
        set_cookie(response, audience, value, self.is_secure);
        remove_cookie(response, Audience::SignInForm);
    }

    /// Starts a sign-in and redirects to a page.
    async fn enter(&self, audience: Audience, credential: &str, next: &str) -> PageResult {
        let mut response = see_other(next);
        self.begin(&mut response, audience, credential).await?;
        Ok(response)
    }

    /// Starts a sign-in and gives back the form that was refused because the last sign-in had ended.
    async fn give_back(&self, audience: Audience, credential: &str, refused: RefusedForm) -> PageResult {
        let sign_ins = &self.engine.sign_ins;
        let (signed_in, value) = sign_ins.begin(audience, credential).await?;
        let token = sign_ins.form_token(audience, &signed_in).await?;
        let typed = refused.with_token(token);
        let mut tenant = String::new();
        if let Some(tenant_id) = typed.tenant_id().filter(|_| audience == Audience::Operator) {
            // Without the name, the form is given back all the same.
            tenant = self.engine.tenants.get(tenant_id).await.map(|tenant| tenant.name).unwrap_or_default();
        }
        let mut response = page(&GivenBackPage { frame: Frame::bare("What you typed"), typed, tenant })?;
        self.set_sign_in(&mut response, audience, &value);
        Ok(response)
    }

    /// The sign-in form, with a new form token.
    async fn form(
        &self,
        audience: Audience,
        fields: &Fields,
        problem: Option<String>,
        refused: Option<&RefusedForm>,
    ) -> PageResult {
        let sign_ins = &self.engine.sign_ins;
        let (signed_in, value) = sign_ins.begin(Audience::SignInForm, "").await?;
        let is_operator = audience == Audience::Operator;
        let home = if is_operator { OPERATOR_HOME } else { HOME };
        let template = SignInPage {
            frame: Frame::bare("Sign in"),
            token: sign_ins.form_token(Audience::SignInForm, &signed_in).await?,
            is_return: fields.filled("next").is_some() && problem.is_none() && !fields.is_on("ended"),
            next: or_home(fields.filled("next"), home).to_owned(),
            has_ended: fields.is_on("ended"),
            is_operator,
            is_signed_out: fields.is_on(SIGNED_OUT) && problem.is_none(),
            is_not_done: fields.is_on(NOT_DONE) || refused.is_some_and(|form| !form.has_text()),
            issuers: if is_operator { Vec::new() } else { sign_ins.issuers() },
            problem,
            typed: refused.filter(|form| form.has_text()).cloned(),
        };
        let is_refused = template.problem.is_some() || refused.is_some();
        let status = if is_refused { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
        let mut response = page_with(status, &template)?;
        set_cookie(&mut response, Audience::SignInForm, &value, self.is_secure);
        Ok(response)
    }
}

/// The sign-in form, sent with the token of its page.
pub(crate) struct CredentialForm {
    visit: Visit,
    fields: Fields,
}

impl Deref for CredentialForm {
    type Target = Visit;

    fn deref(&self) -> &Visit {
        &self.visit
    }
}

impl FromRequestParts<Engine> for CredentialForm {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, engine: &Engine) -> Result<Self, Refusal> {
        let fields = form_fields(parts)?;
        let visit = Visit::from_request_parts(parts, engine).await?;
        let opened = visit.open(Audience::SignInForm).await?.ok_or(Refusal::Forbidden(
            "the form is too old, or the browser keeps no cookies: open the sign-in page again",
        ))?;
        check_token(&fields, &engine.sign_ins.form_token(Audience::SignInForm, &opened).await?)?;
        Ok(Self { visit, fields })
    }
}

impl CredentialForm {
    /// The page to open after the sign-in.
    fn next<'a>(&'a self, home: &'a str) -> &'a str {
        or_home(self.fields.filled("next"), home)
    }

    /// Starts a sign-in, and opens the page that was requested or gives back the refused form.
    async fn accepted(&self, audience: Audience, credential: &str, home: &str) -> PageResult {
        if let Some(refused) = RefusedForm::carried_by(&self.fields).filter(RefusedForm::has_text) {
            return self.give_back(audience, credential, refused).await;
        }
        let next = self.next(home);
        let mut response = self.enter(audience, credential, next).await?;
        let path = next.split(['?', '#']).next().unwrap_or_default();
        // A semicolon would add an attribute to the cookie; no page has one in its path.
        if self.fields.is_on(NOT_DONE) && !path.contains(';') {
            let notice = Notice::new(Done::SignInEnded, None, path);
            self.set_notice(&mut response, &notice.to_cookie(), NOTICE_SECS);
        }
        Ok(response)
    }

    /// The form once more, with the problem.
    async fn again(&self, audience: Audience, problem: &str) -> PageResult {
        let refused = RefusedForm::carried_by(&self.fields);
        self.form(audience, &self.fields, Some(sentence(problem)), refused.as_ref()).await
    }
}

/// The sign-in form leads back to the page `wanted`.
fn sign_in_path(wanted: &str) -> String {
    format!("/console/sign-in?next={}", encoded(wanted))
}

#[derive(Template)]
#[template(path = "sign_in.html")]
#[expect(clippy::struct_excessive_bools, reason = "each flag shows one note")]
struct SignInPage {
    frame: Frame,
    token: String,
    next: String,
    /// A page to continue on, for a person that another site sent here.
    is_return: bool,
    has_ended: bool,
    is_signed_out: bool,
    /// An action without a text to give back was refused.
    is_not_done: bool,
    problem: Option<String>,
    is_operator: bool,
    /// Issuers at whose page a person can sign in.
    issuers: Vec<SignInIssuer>,
    /// The refused form, if the person typed a text into it; the form that takes a key sends it along.
    typed: Option<RefusedForm>,
}

#[derive(Template)]
#[template(path = "given_back.html")]
struct GivenBackPage {
    frame: Frame,
    typed: RefusedForm,
    /// The name of the tenant of an operator's form; empty: it has none, or it is unknown.
    tenant: String,
}

pub(crate) async fn show<P: Person>(visit: Visit) -> PageResult {
    visit.form(P::AUDIENCE, &visit.query, None, None).await
}

/// The sign-in page after a refused form whose sign-in has ended. It carries the refused form.
pub async fn sign_in_again(
    engine: &Engine,
    audience: Audience,
    options: &ConsoleOptions,
    headers: &HeaderMap,
    refused: &RefusedForm,
) -> Result<Response, Refusal> {
    let mut fields = Fields::default();
    fields.add("next", refused.page());
    fields.add("ended", "1".to_owned());
    Visit::new(engine, options, headers).form(audience, &fields, None, Some(refused)).await
}

pub(crate) async fn sign_in(form: CredentialForm) -> PageResult {
    let credential = form.fields.text("credential").trim();
    match check(&form.engine, credential).await {
        Ok(()) => form.accepted(Audience::Tenant, credential, HOME).await,
        Err(error) if is_final(&error) => form.again(Audience::Tenant, &error.to_string()).await,
        Err(error) => Err(error.into()),
    }
}

/// Whether a credential is refused for good, and not only at the moment.
const fn is_final(error: &EngineError) -> bool {
    match error {
        EngineError::Unauthenticated(_) | EngineError::TenantSuspended | EngineError::NotForSessions => true,
        EngineError::Token(why) => !why.is_transient(),
        _ => false,
    }
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

/// Checks the operator's token, which only the server knows.
pub(crate) type TokenCheck = std::sync::Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// `POST /console/sign-in` of the operator's listener
pub(crate) async fn sign_in_operator(
    Extension(is_token): Extension<TokenCheck>,
    form: CredentialForm,
) -> PageResult {
    let token = form.fields.text("credential").trim();
    if !is_token(token) {
        return form.again(Audience::Operator, "this is not the operator's token").await;
    }
    form.accepted(Audience::Operator, token, OPERATOR_HOME).await
}

#[derive(Template)]
#[template(path = "link_used.html")]
struct LinkUsedPage {
    frame: Frame,
}

pub(crate) async fn once(visit: Visit) -> PageResult {
    let Some(credential) = visit.links.take(visit.query.text("token"), visit.engine.now()) else {
        let frame = Frame::bare("The link was used");
        return page_with(StatusCode::GONE, &LinkUsedPage { frame });
    };
    check(&visit.engine, &credential).await?;
    visit.enter(Audience::Tenant, &credential, HOME).await
}

pub(crate) async fn sign_out<P: Person>(_: Form<P>) -> PageResult {
    let mut response = see_other(&format!("/console/sign-in?{SIGNED_OUT}=1"));
    // The server keeps nothing of a sign-in.
    remove_cookie(&mut response, P::AUDIENCE);
    Ok(response)
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
        let expected = [
            "__Host-keepsake_console=v; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure",
            "keepsake_issuer=v; Path=/console/sign-in; Max-Age=600; HttpOnly; SameSite=Lax",
            "keepsake_console=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict",
            "__Host-keepsake_console=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure",
        ];
        assert_eq!(cookies, expected);
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
