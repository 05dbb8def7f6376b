//! The operator's pages, on the operator's listener.

mod health;
mod jobs;
mod tenants;

use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::routing::{get, post};
use axum::{Extension, Router};
use keepsake_engine::{Audience, Engine};

use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, Refusal, see_other};
use crate::request::{Fields, check_token, form_fields};
use crate::sign_in::{self, FormToken, TokenCheck};
use crate::{assets, next};

/// Reads the metrics of this process, in the format of Prometheus.
#[derive(Clone)]
pub struct Readings(Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl Readings {
    pub fn new(read: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    fn read(&self) -> Option<String> {
        (self.0)()
    }
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readings")
    }
}

/// Pages that need no sign-in. `is_token` says whether a text is the operator's token.
pub fn operator_sign_in_routes(is_token: impl Fn(&str) -> bool + Send + Sync + 'static) -> Router<Engine> {
    let check: TokenCheck = Arc::new(is_token);
    Router::new()
        .route("/console/sign-in", get(sign_in::show_operator).post(sign_in::sign_in_operator))
        .route("/console/assets/{file}", get(assets::file))
        .layer(Extension(check))
}

pub fn operator_routes() -> Router<Engine> {
    const TENANT: &str = "/console/tenants/{tenant_id}";
    const JOB: &str = "/console/jobs/{job}";
    Router::new()
        .route("/console", get(async || see_other(next::OPERATOR_HOME)))
        .route("/console/sign-out", post(sign_out))
        .route("/console/health", get(health::show))
        .route("/console/tenants", get(tenants::list))
        .route(TENANT, get(tenants::show))
        .route(&format!("{TENANT}/suspend"), post(tenants::suspend))
        .route(&format!("{TENANT}/resume"), post(tenants::resume))
        .route("/console/jobs", get(jobs::list))
        .route(JOB, get(jobs::show))
        .route(&format!("{JOB}/run"), post(jobs::run))
}

/// The signed-in operator.
struct Operator {
    token: String,
    done: Option<Done>,
}

impl Operator {
    fn frame(&self, title: &str, tab: Tab) -> Frame {
        Frame::of_operator(title, tab, &self.token, self.done)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let token = parts.extensions.get::<FormToken>().cloned();
        Ok(Self {
            token: token.ok_or(Refusal::SignedOut)?.0,
            done: Fields::of_query(parts).get("done").and_then(Done::parse),
        })
    }
}

/// The fields of a form that a page of this sign-in sent.
struct OperatorForm(Fields);

impl<S: Send + Sync> FromRequestParts<S> for OperatorForm {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let operator = Operator::from_request_parts(parts, state).await?;
        let fields = form_fields(parts)?;
        check_token(&fields, &operator.token)?;
        Ok(Self(fields))
    }
}

/// `POST /console/sign-out`
async fn sign_out(form: OperatorForm) -> PageResult {
    drop(form);
    Ok(sign_in::left(Audience::Operator))
}
