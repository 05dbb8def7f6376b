//! The web console within the layers of the API.
//!
//! The crate `keepsake_console` makes the pages. A person's request passes the same steps as a
//! program's: the cookie becomes a credential, `auth` finds the principal, `admission` admits it,
//! and the form is read within the tenant's limits.

pub(crate) mod refused;
mod upload;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{OriginalUri, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use keepsake_console::{
    ConsoleOptions, ErrorFrame, FormBytes, FormToken, Pages, Refusal, call_row, keep_frame,
    keep_operator_frame, operator_routes, operator_sign_in_routes, refusal_of, require_sign_in, secured,
    tenant_pages, upload_pages,
};
use keepsake_core::{EventId, Refused, SessionId, Timestamp};
use keepsake_engine::{Audience, Engine, EngineError, Principal};
use keepsake_index::SessionEvent;

use crate::admission::{Admission, admit};
use crate::auth::Caller;
use crate::body::{self, ReceivedRequest};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::routes::sessions::events::Calls;
use crate::routes::{exports, no_such_method};
use crate::streams::Subscription;
use crate::{OperatorOptions, admin};

/// Limit of a form that needs no sign-in and carries no text, and of the operator's forms.
const MAX_SMALL_FORM_BYTES: u64 = 16 << 10;
/// A form acts once; the API names the header that does this.
const FORM_CHANGED: &str = "this form was sent before, with other content: open its page again";

query_params! {
    /// Parameters of a session's stream.
    FollowSession {
        /// The newest event that the page has.
        after: Option<EventId> = id("after"),
    }
}

/// The pages of a tenant's people, with streams and downloads, and the pages that receive a file.
///
/// `in_turn` wraps the pages that wait for no other slot.
pub(crate) fn pages(in_turn: impl FnOnce(Router<Engine>) -> Router<Engine>) -> (Pages, Pages) {
    let pages = tenant_pages()
        .wrapped(in_turn)
        .with_search()
        .with_unknown()
        .get("/console/sessions/{session_id}/events", follow_session)
        .get("/console/stores/{memory_store_id}/archive", exports::export);
    (pages, upload_pages())
}

pub(crate) fn routes(
    engine: &Engine,
    admission: &Arc<Admission>,
    options: &ConsoleOptions,
) -> Router<Engine> {
    let in_turn = middleware::from_fn_with_state(engine.clone(), make_in_turn);
    let (pages, uploads) = pages(|router| router.layer(in_turn));
    let uploads = uploads.router.layer(middleware::from_fn_with_state(engine.clone(), upload::read_upload));
    let signed_in = pages
        .router
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(engine.clone(), read_form))
        .merge(uploads)
        .layer(middleware::from_fn_with_state(Arc::clone(admission), admit))
        .layer(middleware::from_fn_with_state(engine.clone(), keep_frame))
        .layer(middleware::from_fn_with_state((engine.clone(), Audience::Tenant), require_sign_in));
    let open = keepsake_console::open_routes().layer(middleware::from_fn(refused::read_open_form));
    signed_in
        .merge(open)
        .layer(middleware::map_response(to_api_error))
        .layer(middleware::from_fn_with_state((engine.clone(), Audience::Tenant), refused::keep_form))
        .layer(Extension(options.clone()))
}

/// Streams the calls of a session after the client's last event, or after `after`, as rows of the
/// page's table.
async fn follow_session(
    Caller(engine, principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams(params): QueryParams<FollowSession>,
    subscription: Subscription,
) -> Result<Response, ApiError> {
    let last = subscription.place(|text| text.parse().ok())?;
    let after = last.or(params.after);
    let calls = Calls::follow(&engine, &principal, session_id, after, sent_row).await?;
    Ok(secured(subscription.answer(engine, calls)))
}

/// JSON, because a line break in the row would end the event's data.
#[expect(clippy::needless_pass_by_value, reason = "the API's stream consumes the event")]
fn sent_row(event: SessionEvent, now: Timestamp) -> Option<Event> {
    let row = call_row(&event, now)?;
    let sent = Event::default().id(event.event_id.to_string()).json_data(row);
    sent.ok()
}

pub(crate) fn operator_console(engine: &Engine, options: &OperatorOptions) -> Router<Engine> {
    let token = options.token;
    let signed_in = operator_routes()
        .layer(middleware::from_fn(read_small_form))
        .layer(middleware::from_fn_with_state(engine.clone(), keep_operator_frame))
        .layer(middleware::from_fn_with_state(token, admin::require))
        .layer(middleware::from_fn_with_state((engine.clone(), Audience::Operator), require_sign_in));
    let open = operator_sign_in_routes(move |text| token.is(text))
        .layer(middleware::from_fn(refused::read_open_form));
    signed_in
        .merge(open)
        .layer(middleware::map_response(to_api_error))
        .layer(middleware::from_fn_with_state((engine.clone(), Audience::Operator), refused::keep_form))
        .layer(Extension(options.exposition.clone()))
        .layer(Extension(options.server.console.clone()))
}

/// Leads to the console; a program that wants no page gets the answer of an unknown route.
pub(crate) fn front_page(uri: &OriginalUri, headers: &HeaderMap) -> Option<Response> {
    let accepts = headers.get(header::ACCEPT).map_or("*/*", |value| value.to_str().unwrap_or_default());
    let takes_page = accepts.contains("text/html") || accepts.contains("*/*");
    let redirect = || (StatusCode::SEE_OTHER, [(header::LOCATION, "/console")]).into_response();
    (uri.0.path() == "/" && takes_page).then(redirect)
}

/// Turns a refusal of the console into an API error.
async fn to_api_error(mut response: Response) -> Response {
    let Some(refusal) = refusal_of(&mut response) else {
        return response;
    };
    let error = match &*refusal {
        Refusal::Engine(EngineError::Refused(Refused::KeyReused)) => ApiError::invalid_request(FORM_CHANGED),
        Refusal::Engine(error) => ApiError::from(error),
        Refusal::SignedOut => ApiError::unauthenticated("you are not signed in, or no longer"),
        Refusal::Forbidden(why) => ApiError::permission_denied(*why),
        Refusal::NotFound(what) => ApiError::not_found(*what),
        Refusal::Invalid(rule) => ApiError::invalid_request(rule.as_str()),
        Refusal::Internal => ApiError::internal(),
    };
    let mut answer = error.into_response();
    if let Some(token) = response.extensions_mut().remove::<FormToken>() {
        answer.extensions_mut().insert(token);
    }
    if let Some(frame) = response.extensions_mut().remove::<ErrorFrame>() {
        answer.extensions_mut().insert(frame);
    }
    for cookie in response.headers().get_all(header::SET_COOKIE) {
        answer.headers_mut().append(header::SET_COOKIE, cookie.clone());
    }
    answer
}

/// Limits how many pages are rendered at once: a large page occupies a thread, which serves all
/// tenants, for some milliseconds.
async fn make_in_turn(
    State(engine): State<Engine>,
    Extension(principal): Extension<Arc<Principal>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let _slot = engine.page_slots.take(principal.tenant_id).await?;
    Ok(next.run(request).await)
}

async fn read_form(State(engine): State<Engine>, request: Request, next: Next) -> Result<Response, ApiError> {
    if request.method() != Method::POST {
        return Ok(next.run(request).await);
    }
    let form = ReceivedRequest::form(request, &engine).await?;
    let mut head = form.head;
    head.extensions.insert(form.principal);
    Ok(next.run(with_form(head, form.bytes)).await)
}

async fn read_small_form(request: Request, next: Next) -> Result<Response, ApiError> {
    if request.method() != Method::POST {
        return Ok(next.run(request).await);
    }
    body::require_form(request.headers())?;
    let (head, form) = request.into_parts();
    let bytes = read_counted(&head, form, MAX_SMALL_FORM_BYTES, |_| Ok(())).await?;
    if let Some(slot) = head.extensions.get::<refused::FormSlot>() {
        slot.keep(bytes.clone());
    }
    Ok(next.run(with_form(head, bytes)).await)
}

/// Reads a form outside any tenant's limits, and limits its fields before it is parsed.
async fn read_counted(
    head: &Parts,
    form: Body,
    limit_bytes: u64,
    charge: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let bytes = body::read(head, form, limit_bytes, charge).await?;
    body::count_fields(&bytes)?;
    Ok(bytes)
}

fn with_form(mut head: Parts, bytes: Bytes) -> Request {
    head.extensions.insert(FormBytes(bytes));
    Request::from_parts(head, Body::empty())
}
