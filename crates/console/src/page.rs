//! Pages, redirects and refusals, with the headers that all of them have.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keepsake_core::{Refused, VersionId};
use keepsake_engine::{Engine, EngineError, Principal};

use crate::frame::{Done, Frame};
use crate::notice::Notice;
use crate::operator::Operator;
use crate::request::{Person, path_and_token};
use crate::text::markup::{self, encoded};
use crate::typed::{RefusedForm, label_of};

/// A page loads only the console's style sheet and script, and sends forms only to the console.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Marks an answer that is a page already, whatever its status.
#[derive(Debug, Clone, Copy)]
pub struct IsPage;

pub(crate) type PageResult = Result<Response, Refusal>;

#[derive(Debug)]
pub enum Refusal {
    Engine(EngineError),
    /// The person was never signed in, or the sign-in has ended.
    SignedOut,
    /// The request did not come from a form of the console.
    Forbidden(&'static str),
    NotFound(&'static str),
    /// A field of the form breaks a rule.
    Invalid(String),
    /// A template failed: a bug.
    Internal,
}

impl Refusal {
    pub(crate) fn invalid(rule: &str) -> Self {
        Self::Invalid(rule.to_owned())
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        match error {
            // A person follows a link, and knows no cursor.
            EngineError::Invalid { field: "page", .. } => {
                Self::invalid("this link to a part of a list is not valid: open the list from its beginning")
            }
            error => Self::Engine(error),
        }
    }
}

/// Carries a refusal within a response, until the server has turned it into an error.
#[derive(Debug, Clone)]
struct ResponseRefusal(Arc<Refusal>);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(ResponseRefusal(Arc::new(self)));
        response
    }
}

pub fn refusal_of(response: &mut Response) -> Option<Arc<Refusal>> {
    response.extensions_mut().remove::<ResponseRefusal>().map(|ResponseRefusal(refusal)| refusal)
}

pub(crate) fn page(template: &impl Template) -> PageResult {
    page_with(StatusCode::OK, template)
}

pub(crate) fn page_with(status: StatusCode, template: &impl Template) -> PageResult {
    Ok(html(status, rendered(template)?))
}

pub(crate) fn rendered(template: &impl Template) -> Result<String, Refusal> {
    template.render().map_err(|error| {
        tracing::error!(error = %error, "console.page cannot be made");
        Refusal::Internal
    })
}

/// Answers for an address that no page has, within the frame of the pages.
pub(crate) async fn no_such_page() -> Refusal {
    Refusal::NotFound("there is no such page")
}

fn html(status: StatusCode, text: String) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let mut response = (status, content_type, text).into_response();
    response.extensions_mut().insert(IsPage);
    secured(response)
}

pub fn secured(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

pub(crate) fn see_other(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    secured((StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response())
}

/// Redirects to a page that shows the message about the finished action.
pub(crate) fn done(path: &str, done: Done) -> PageResult {
    redirect_with(Notice::new(done, None, path), path)
}

/// The same, with the version that the action made: the page offers to take it back.
pub(crate) fn done_as(path: &str, action: Done, version_id: VersionId) -> PageResult {
    redirect_with(Notice::new(action, Some(version_id), path), path)
}

/// The same, with the fields that take the action back, and their earlier values. `token` is that of
/// the sign-in's forms.
pub(crate) fn done_after(token: &str, path: &str, action: Done, before: Vec<(String, String)>) -> PageResult {
    redirect_with(Notice::new(action, None, path).with_before(token, before), path)
}

/// The sign-in's middleware puts the message into a cookie.
fn redirect_with(notice: Notice, path: &str) -> PageResult {
    let location = HeaderValue::try_from(path).map_err(|_| Refusal::Internal)?;
    let mut response = secured((StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response());
    response.extensions_mut().insert(notice);
    Ok(response)
}

/// The frame of a page whose request ended with an error.
#[derive(Debug, Clone)]
pub struct ErrorFrame(Arc<Frame>);

/// Adds the frame of the page to an error response, so that the page of the error has the navigation.
/// The server knows the person only after this layer, and adds them to the extensions of the response.
pub async fn keep_frame(state: State<Engine>, request: Request, next: Next) -> Response {
    keep_frame_of::<Arc<Principal>>(state, request, next).await
}

/// As [`keep_frame`], for the operator's pages.
pub async fn keep_operator_frame(state: State<Engine>, request: Request, next: Next) -> Response {
    keep_frame_of::<Operator>(state, request, next).await
}

async fn keep_frame_of<P: Person>(State(engine): State<Engine>, request: Request, next: Next) -> Response {
    let place = path_and_token(request.extensions(), request.uri());
    let mut response = next.run(request).await;
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let person = P::of(response.extensions()).filter(|_| is_error);
    if let Some((person, (path, token))) = person.zip(place) {
        let frame = Frame::of(&person, path, token, "", engine.now());
        response.extensions_mut().insert(ErrorFrame(Arc::new(frame)));
    }
    response
}

/// A file to save; no browser shows its content as a page.
pub fn download(name: &str, content_type: &'static str, content: impl IntoResponse) -> Response {
    let disposition = format!("attachment; filename*=UTF-8''{}", encoded(name));
    let disposition = HeaderValue::try_from(disposition).unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    secured((headers, content).into_response())
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    frame: Frame,
    message: String,
    request_id: &'a str,
    is_signed_out: bool,
    /// Whether a form of the console was refused, other than a button.
    is_form: bool,
    /// Whether the same form may be accepted later.
    may_pass_later: bool,
    typed: Option<&'a RefusedForm>,
}

/// Shows the API's message, and the text typed into a refused form, or how to keep this text if the
/// server has not read the form.
pub fn error_page(
    status: StatusCode,
    message: &str,
    request_id: &str,
    is_form: bool,
    refused: Option<&RefusedForm>,
    frame: Option<ErrorFrame>,
) -> Response {
    let heading = match status.as_u16() {
        401 => "You are not signed in",
        403 => "This is not allowed",
        404 => "This was not found",
        409 => "This conflicts with another change",
        413 => "This is too large",
        429 | 529 => "Too many requests",
        400..=499 => "This cannot be done",
        503 | 504 | 507 => "The server cannot do this now",
        _ => "Something went wrong",
    };
    let is_of_form = status == StatusCode::METHOD_NOT_ALLOWED;
    let message = if is_of_form { "a form leads to this address, and no link does" } else { message };
    let is_signed_out = status == StatusCode::UNAUTHORIZED;
    // After the end of a sign-in, the sections lead nowhere.
    let frame = frame.filter(|_| !is_signed_out);
    let frame = frame.map_or_else(|| Frame::bare(heading), |ErrorFrame(frame)| frame.with_title(heading));
    let template = ErrorPage {
        frame,
        message: sentence(message),
        request_id,
        is_signed_out,
        is_form: is_form && !refused.is_some_and(RefusedForm::is_button),
        may_pass_later: matches!(status.as_u16(), 408 | 429 | 500..=599),
        typed: refused.filter(|form| form.has_text()),
    };
    match template.render() {
        Ok(text) => html(status, text),
        Err(_) => secured((status, message.to_owned()).into_response()),
    }
}

/// The rule that a form breaks, as a sentence.
pub(crate) fn rule_of(error: impl Into<Refusal>) -> Result<String, Refusal> {
    match error.into() {
        Refusal::Engine(error @ EngineError::Invalid { .. }) => Ok(sentence(&error.to_string())),
        Refusal::Invalid(rule) => Ok(sentence(&rule)),
        other => Err(other),
    }
}

/// Why a form was refused, and the name of its wrong field; empty: it was not.
#[derive(Debug, Default)]
pub(crate) struct Problem {
    pub(crate) text: String,
    field: String,
}

impl Problem {
    /// The rule that a form breaks.
    pub(crate) fn of(error: impl Into<Refusal>) -> Result<Self, Refusal> {
        let refusal = error.into();
        let field = match &refusal {
            Refusal::Engine(EngineError::Invalid { field, .. }) => (*field).to_owned(),
            Refusal::Invalid(rule) => split_field(rule).map_or("", |(field, _)| field).to_owned(),
            _ => String::new(),
        };
        Ok(Self { text: rule_of(refusal)?, field })
    }

    pub(crate) fn at(field: &str, message: &str) -> Self {
        Self { text: sentence(message), field: field.to_owned() }
    }

    pub(crate) fn is_at(&self, field: &str) -> bool {
        self.field == field
    }

    /// The status of a page that shows a filter with the problem, or what the filter finds.
    pub(crate) fn status(&self) -> StatusCode {
        if self.text.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST }
    }
}

/// The message of an error that the person can correct in the form.
pub(crate) fn problem_of(error: impl Into<Refusal>) -> Result<String, Refusal> {
    match error.into() {
        Refusal::Engine(EngineError::Refused(Refused::KeyReused)) => {
            Err(EngineError::Refused(Refused::KeyReused).into())
        }
        Refusal::Engine(
            error @ (EngineError::PreconditionFailed { .. }
            | EngineError::Conflict(_)
            | EngineError::Refused(_)),
        ) => Ok(sentence(&error.to_string())),
        other => rule_of(other),
    }
}

/// A message of the API as a sentence, with the names of fields as the forms show them.
pub(crate) fn sentence(message: &str) -> String {
    let message = split_field(message)
        .map_or_else(|| message.to_owned(), |(field, rule)| format!("{}{rule}", label_of(field)));
    let end = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    // The name of a file stays as it is.
    let is_name =
        message.split_whitespace().next().is_some_and(|word| word.trim_end_matches('.').contains('.'));
    let mut letters = message.chars();
    match letters.next().filter(|_| !is_name) {
        Some(first) => first.to_uppercase().to_string() + letters.as_str() + end,
        None => message + end,
    }
}

/// The field with which a message begins, and the rest.
fn split_field(message: &str) -> Option<(&str, &str)> {
    let named = message.strip_prefix('`')?.split_once('`')?;
    is_field(named.0).then_some(named)
}

/// Whether a text is the name of a field, and not a path or another value.
fn is_field(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_a_sentence_in_the_words_of_the_forms() {
        for (message, shown) in [
            ("the memory was not found", "The memory was not found."),
            ("`expires_days` must be at most 9", "Expires after days must be at most 9."),
            ("`path_prefix` must end with /", "The directory must end with /."),
            ("`/a.md` is a file.", "`/a.md` is a file."),
            ("", "."),
        ] {
            assert_eq!(sentence(message), shown);
        }
    }
}
