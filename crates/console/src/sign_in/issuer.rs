//! Sign-in at the page of an issuer (OpenID Connect).
//!
//! [`start`] sends the browser to the issuer, and [`arrive`] receives it with a code. Both answer
//! with a page that continues by itself, not with a redirect. So the sign-in page's policy can
//! forbid forms that lead to another site. And this site opens the page after the sign-in, so that
//! the request carries the cookie, which is `SameSite=Strict`.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use keepsake_engine::{AtIssuer, Audience, Engine, IssuerSignInError, OpenIdError, Returned};

use super::{ConsoleOptions, check, cookies, credential_fields, is_final, is_secure};
use super::{remove_cookie, set_cookie, set_sign_in, sign_in_path};
use crate::frame::Frame;
use crate::next::{HOME, or_home};
use crate::page::{PageResult, Refusal, page, page_with};
use crate::request::{Fields, Query};

/// Shown to a browser that returns from an issuer without a begun sign-in.
const NOT_BEGUN: &str = "This browser did not begin this sign-in, has completed it already, began it more than ten \
    minutes ago, or began another one since.";

#[derive(Template)]
#[template(path = "go_on.html")]
struct GoOnPage<'a> {
    frame: Frame,
    heading: String,
    url: &'a str,
}

#[derive(Template)]
#[template(path = "sign_in_failed.html")]
struct FailedPage<'a> {
    frame: Frame,
    problem: &'a str,
    again: String,
}

/// `POST /console/sign-in/issuer`
pub(crate) async fn start(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    parts: Parts,
) -> PageResult {
    let fields = credential_fields(&engine, &options, &parts).await?;
    let next = or_home(fields.filled("next"), HOME);
    let issuer_id = fields.text("issuer");
    let begun = match engine.sign_ins.begin_at_issuer(issuer_id, next).await {
        Ok(begun) => begun,
        Err(IssuerSignInError::OpenId(why)) => return refused(&engine, issuer_id, next, &why),
        Err(IssuerSignInError::Engine(error)) => return Err(error.into()),
    };
    let heading = format!("On to {}", name_of(&engine, issuer_id));
    let mut response = page(&GoOnPage { frame: Frame::bare(&heading), heading, url: &begun.url })?;
    let is_secure = is_secure(&options, &parts.headers);
    set_cookie(&mut response, Audience::AtIssuer, &begun.cookie, is_secure);
    Ok(response)
}

/// `GET /console/sign-in/callback`
pub(crate) async fn arrive(
    State(engine): State<Engine>,
    Extension(options): Extension<ConsoleOptions>,
    headers: HeaderMap,
    Query(fields): Query,
) -> PageResult {
    let is_secure = is_secure(&options, &headers);
    let mut begun = None;
    for value in cookies(&headers, Audience::AtIssuer, is_secure) {
        let opened = engine.sign_ins.open_at_issuer(value, fields.text("state"));
        begun = begun.or(opened.await?);
    }
    let Some(begun) = begun else {
        // The cookie stays: a link of another site must not end a sign-in.
        tracing::info!("console.sign_in was refused: the browser has not begun it");
        return failed(StatusCode::FORBIDDEN, NOT_BEGUN, HOME);
    };
    let answer = welcome(&engine, &begun, &fields, is_secure).await;
    let mut response = answer.unwrap_or_else(Refusal::into_response);
    // The cookie is used once, whatever the outcome.
    remove_cookie(&mut response, Audience::AtIssuer);
    Ok(response)
}

/// Signs in the person that the issuer sent back.
async fn welcome(engine: &Engine, begun: &AtIssuer, fields: &Fields, is_secure: bool) -> PageResult {
    let next = or_home(Some(&begun.next), HOME);
    let credential = match credential_of(engine, begun, fields).await {
        Ok(credential) => credential,
        Err(IssuerSignInError::OpenId(why)) => return refused(engine, begun.issuer_id(), next, &why),
        Err(IssuerSignInError::Engine(error)) if is_final(&error) => {
            let why = error.to_string();
            log_refusal(engine, begun.issuer_id(), &why);
            return failed(StatusCode::UNAUTHORIZED, &sentence(&why), next);
        }
        Err(IssuerSignInError::Engine(error)) => return Err(error.into()),
    };
    let heading = "You are signed in".to_owned();
    let mut response = page(&GoOnPage { frame: Frame::bare(&heading), heading, url: next })?;
    let set = set_sign_in(engine, &mut response, Audience::Tenant, &credential, is_secure).await;
    if let Err(error) = set {
        // For example, the token does not fit into a cookie.
        log_refusal(engine, begun.issuer_id(), &error.to_string());
        return Err(error.into());
    }
    Ok(response)
}

async fn credential_of(
    engine: &Engine,
    begun: &AtIssuer,
    fields: &Fields,
) -> Result<String, IssuerSignInError> {
    if let Some(code) = fields.filled("error") {
        return Err(OpenIdError::refused(code).into());
    }
    let returned = Returned {
        code: fields.filled("code").ok_or(OpenIdError::Incomplete("code"))?,
        issuer: fields.get("iss"),
    };
    let credential = engine.sign_ins.redeem(begun, returned).await?;
    check(engine, &credential).await?;
    Ok(credential)
}

fn name_of(engine: &Engine, issuer_id: &str) -> String {
    let issuers = engine.sign_ins.issuers();
    let found = issuers.into_iter().find(|issuer| issuer.id == issuer_id);
    found.map(|issuer| issuer.name).unwrap_or_default()
}

fn log_refusal(engine: &Engine, issuer_id: &str, why: &str) {
    let name = name_of(engine, issuer_id);
    tracing::warn!(issuer.name = name, "console.sign_in at an issuer failed: {why}");
}

/// The issuer refused the sign-in, or the server does not accept it.
fn refused(engine: &Engine, issuer_id: &str, next: &str, why: &OpenIdError) -> PageResult {
    let status = match why {
        OpenIdError::UnknownClient => StatusCode::BAD_REQUEST,
        why if why.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNAUTHORIZED,
    };
    log_refusal(engine, issuer_id, &why.to_string());
    failed(status, &sentence(&why.to_string()), next)
}

/// A page with the problem and a link to try again.
fn failed(status: StatusCode, problem: &str, next: &str) -> PageResult {
    let template =
        FailedPage { frame: Frame::bare("You are not signed in"), problem, again: sign_in_path(next) };
    page_with(status, &template)
}

/// Capitalizes a message and ends it with a full stop.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}
