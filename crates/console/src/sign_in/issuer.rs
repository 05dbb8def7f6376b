//! Sign-in at the page of an issuer (OpenID Connect).
//!
//! [`start`] sends the browser to the issuer, and [`arrive`] receives it with a code. Both answer
//! with a page that continues by itself, not with a redirect. So the sign-in page's policy can
//! forbid forms that lead to another site. And this site opens the page after the sign-in, so that
//! the request carries the cookie, which is `SameSite=Strict`.

use askama::Template;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use keepsake_engine::{
    Audience, AuthorizationResponse, Engine, IssuerSignInError, OpenIdError, PendingSignIn,
};

use super::{CredentialForm, Visit, check, is_final, remove_cookie, set_cookie, sign_in_path};
use crate::frame::Frame;
use crate::next::{HOME, or_home};
use crate::page::{PageResult, Refusal, page, page_with, sentence};

/// Shown to a browser that returns from an issuer without a begun sign-in.
const NOT_BEGUN: &str = "This browser did not begin this sign-in, has completed it already, began it more than ten \
    minutes ago, or began another one since.";

#[derive(Template)]
#[template(path = "go_on.html")]
struct GoOnPage<'a> {
    frame: Frame,
    url: &'a str,
}

#[derive(Template)]
#[template(path = "sign_in_failed.html")]
struct FailedPage<'a> {
    frame: Frame,
    problem: &'a str,
    again: String,
}

pub(crate) async fn start(form: CredentialForm) -> PageResult {
    let (engine, next, issuer_id) = (&form.engine, form.next(HOME), form.fields.text("issuer"));
    let begun = match engine.sign_ins.begin_at_issuer(issuer_id, next).await {
        Ok(begun) => begun,
        Err(IssuerSignInError::OpenId(why)) => return refused(engine, issuer_id, next, &why),
        Err(IssuerSignInError::Engine(error)) => return Err(error.into()),
    };
    let heading = format!("On to {}", name_of(engine, issuer_id));
    let mut response = page(&GoOnPage { frame: Frame::bare(&heading), url: &begun.url })?;
    set_cookie(&mut response, Audience::AtIssuer, &begun.cookie, form.is_secure);
    Ok(response)
}

pub(crate) async fn arrive(visit: Visit) -> PageResult {
    let mut begun = None;
    for value in visit.cookies(Audience::AtIssuer) {
        let opened = visit.engine.sign_ins.open_at_issuer(value, visit.query.text("state"));
        begun = begun.or(opened.await?);
    }
    let Some(begun) = begun else {
        // The cookie stays: a link of another site must not end a sign-in.
        tracing::info!("console.sign_in was refused: the browser has not begun it");
        return failed(StatusCode::FORBIDDEN, NOT_BEGUN, HOME);
    };
    let mut response = welcome(&visit, &begun).await.unwrap_or_else(Refusal::into_response);
    // The cookie is used once, whatever the outcome.
    remove_cookie(&mut response, Audience::AtIssuer);
    Ok(response)
}

/// Signs in the person that the issuer sent back.
async fn welcome(visit: &Visit, begun: &PendingSignIn) -> PageResult {
    let (engine, next) = (&visit.engine, or_home(Some(&begun.next), HOME));
    let credential = match credential_of(visit, begun).await {
        Ok(credential) => credential,
        Err(IssuerSignInError::OpenId(why)) => return refused(engine, begun.issuer_id(), next, &why),
        Err(IssuerSignInError::Engine(error)) if is_final(&error) => {
            let why = error.to_string();
            log_refusal(engine, begun.issuer_id(), &why);
            return failed(StatusCode::UNAUTHORIZED, &sentence(&why), next);
        }
        Err(IssuerSignInError::Engine(error)) => return Err(error.into()),
    };
    let mut response = page(&GoOnPage { frame: Frame::bare("You are signed in"), url: next })?;
    if let Err(error) = visit.begin(&mut response, Audience::Tenant, &credential).await {
        // For example, the token does not fit into a cookie.
        log_refusal(engine, begun.issuer_id(), &error.to_string());
        return Err(error.into());
    }
    Ok(response)
}

async fn credential_of(visit: &Visit, begun: &PendingSignIn) -> Result<String, IssuerSignInError> {
    let fields = &visit.query;
    if let Some(code) = fields.filled("error") {
        return Err(OpenIdError::refused(code).into());
    }
    let returned = AuthorizationResponse {
        code: fields.filled("code").ok_or(OpenIdError::Incomplete("code"))?,
        issuer: fields.get("iss"),
    };
    let credential = visit.engine.sign_ins.redeem(begun, returned).await?;
    check(&visit.engine, &credential).await?;
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
