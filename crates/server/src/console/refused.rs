//! Keeps the form of a request until the answer is known, so that a refusal can give back the typed
//! text. Nothing is kept after the answer.
//!
//! A form is read even if its sender is not signed in or the request was refused unread. The memory
//! for such forms is bounded for the process, and charged as their bytes arrive: a client that
//! states a length and sends nothing holds nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use keepsake_console::{ConsoleOptions, FormToken, IsPage, RefusedForm, sign_in_again};
use keepsake_engine::{Audience, Engine};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{MAX_SMALL_FORM_BYTES, read_counted, upload, with_form};
use crate::admission::holding_until_sent;
use crate::body;
use crate::error::ApiError;

/// Limit of a form whose sender is not signed in.
const MAX_FORM_BYTES: u64 = 2 << 20;
/// Limit of the sign-in form, which carries a refused form in longer names beside its own fields.
const MAX_CARRIED_BYTES: u64 = MAX_FORM_BYTES + MAX_SMALL_FORM_BYTES;
/// A form with a file is read only up to here, for the texts before the file.
const MAX_TEXTS_BYTES: usize = 64 << 10;
/// Memory of all forms whose sender is not signed in or that are refused.
const MAX_ALL_KIB: usize = 64 << 10;
/// Copies of a form in memory while it arrives, in a buffer that grows.
const COPIES_WHILE_IT_ARRIVES: usize = 2;
/// Copies of a form in memory once it was read: as sent, parsed, and on its page.
const COPIES: usize = 16;

static MEMORY: Semaphore = Semaphore::const_new(MAX_ALL_KIB);

/// A request's form, kept for its answer; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct FormSlot(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    sent: FormBody,
    /// The part of [`MEMORY`] that the form holds, in KiB.
    share: Option<SemaphorePermit<'static>>,
}

#[derive(Default)]
enum FormBody {
    #[default]
    Nothing,
    Encoded(Bytes),
    WithFile(Vec<(String, String)>),
    /// Checked to come from this console; the page that states the refusal shows it.
    Refused(RefusedForm),
}

impl FormBody {
    fn form(self, path: &str) -> Option<RefusedForm> {
        match self {
            Self::Nothing => None,
            Self::Encoded(bytes) => RefusedForm::encoded(path, &bytes),
            Self::WithFile(fields) => RefusedForm::with_file(path, &fields),
            Self::Refused(form) => Some(form),
        }
    }
}

impl FormSlot {
    pub(crate) fn keep(&self, bytes: Bytes) {
        self.set(FormBody::Encoded(bytes));
    }

    /// Keeps the texts of a form with a file.
    pub(super) fn keep_texts(&self, fields: Vec<(String, String)>) {
        self.set(FormBody::WithFile(fields));
    }

    fn set(&self, sent: FormBody) {
        self.0.lock().sent = sent;
    }

    fn take(&self) -> FormBody {
        std::mem::take(&mut self.0.lock().sent)
    }

    /// Holds memory for `copies` copies of a form of which `bytes` bytes have arrived.
    fn hold(&self, bytes: usize, copies: usize) -> Result<(), ApiError> {
        let kib = bytes.saturating_mul(copies) / 1_024 + 1;
        if u64::try_from(bytes).is_ok_and(|bytes| bytes > MAX_CARRIED_BYTES) {
            return Err(ApiError::too_many_forms());
        }
        let mut slot = self.0.lock();
        let missing = kib.saturating_sub(slot.share.as_ref().map_or(0, SemaphorePermit::num_permits));
        let missing = u32::try_from(missing).map_err(|_| ApiError::too_many_forms())?;
        let more = MEMORY.try_acquire_many(missing).map_err(|_| ApiError::too_many_forms())?;
        let share = match slot.share.take() {
            Some(mut share) => {
                share.merge(more);
                share
            }
            None => more,
        };
        slot.share = Some(share);
        Ok(())
    }

    fn arriving(&self) -> impl FnMut(usize) -> Result<(), ApiError> {
        let mut arrived = 0_usize;
        move |bytes| {
            arrived += bytes;
            self.hold(arrived, COPIES_WHILE_IT_ARRIVES)
        }
    }

    /// Reads a form within a tenant's share of memory, and keeps it. A form over the share is read
    /// and kept too if [`MEMORY`] has room, and then refused.
    pub(crate) async fn read_within(
        &self,
        head: &Parts,
        body: Body,
        limit_bytes: u64,
        charge: impl Fn(usize) -> Result<(), ApiError>,
    ) -> Result<Bytes, ApiError> {
        if HttpBody::size_hint(&body).lower() > limit_bytes {
            // The body stays unread, so that `keep_form` gets it back.
            return Err(ApiError::body_too_large(limit_bytes));
        }
        let (mut arrived, mut refused) = (0, None);
        let hold = |bytes: usize| {
            arrived += bytes;
            if refused.is_none() {
                match charge(bytes) {
                    Ok(()) => return Ok(()),
                    Err(error) => refused = Some(error),
                }
            }
            self.hold(arrived, COPIES_WHILE_IT_ARRIVES)
        };
        let read = body::read(head, body, limit_bytes, hold).await;
        match (read, refused) {
            (Ok(bytes), None) => {
                self.keep(bytes.clone());
                Ok(bytes)
            }
            (Ok(bytes), Some(error)) => {
                self.keep_refused(bytes);
                Err(error)
            }
            (Err(error), None) | (Err(_), Some(error)) => Err(error),
        }
    }

    /// Reads a form that needs no sign-in, and keeps it. Only a large form takes a part of [`MEMORY`].
    async fn read_open(&self, head: &Parts, form: Body) -> Result<Bytes, ApiError> {
        let hold_large = |bytes: usize, copies| {
            let is_small = u64::try_from(bytes).is_ok_and(|bytes| bytes <= MAX_SMALL_FORM_BYTES);
            if is_small { Ok(()) } else { self.hold(bytes, copies) }
        };
        let mut arrived = 0;
        let arriving = |bytes: usize| {
            arrived += bytes;
            hold_large(arrived, COPIES_WHILE_IT_ARRIVES)
        };
        let bytes = read_counted(head, form, MAX_CARRIED_BYTES, arriving).await?;
        hold_large(bytes.len(), COPIES)?;
        self.keep(bytes.clone());
        Ok(bytes)
    }

    fn keep_refused(&self, bytes: Bytes) {
        if self.hold(bytes.len(), COPIES).is_ok() {
            self.keep(bytes);
        }
    }

    /// The form of a refused request: as [`keep_form`] has checked it, or as it was sent, if the
    /// deadline or a panic came first. An unchecked form is shown only if the browser says that a
    /// page of the console sent it; a form that is sent again is checked in any case.
    pub(crate) fn refused(&self, path: &str, is_own: bool) -> Option<RefusedForm> {
        match self.take() {
            FormBody::Refused(form) => Some(form),
            sent if is_own => sent.form(path),
            _ => None,
        }
    }

    /// Holds the memory of the page with the form until the answer is sent.
    pub(crate) fn until_sent(&self, response: Response) -> Response {
        let share = self.0.lock().share.take();
        let Some(mut share) = share else {
            return response;
        };
        let answer = HttpBody::size_hint(response.body()).upper();
        let answer = answer.and_then(|bytes| usize::try_from(bytes / 1_024 + 1).ok());
        let unused = share.num_permits().saturating_sub(answer.unwrap_or(usize::MAX));
        drop(share.split(unused));
        response.map(|body| holding_until_sent(Arc::new(share), body))
    }

    /// Reads the form of a refused request, and keeps it: of a form with a file, the texts before the file.
    async fn read(&self, head: &Parts, body: Body) {
        if let Some(boundary) = body::boundary_of(&head.headers) {
            let start = body::read_start(head, body, MAX_TEXTS_BYTES, self.arriving()).await;
            if self.hold(start.len(), COPIES).is_ok() {
                self.keep_texts(upload::texts_of(start, boundary).await);
            }
        } else if body::require_form(&head.headers).is_ok()
            && let Ok(bytes) = read_counted(head, body, MAX_FORM_BYTES, self.arriving()).await
        {
            self.keep_refused(bytes);
        }
    }
}

/// Keeps the form of a refused request for the page that states the refusal.
pub(super) async fn keep_form(
    State((engine, audience)): State<(Engine, Audience)>,
    Extension(options): Extension<ConsoleOptions>,
    request: Request,
    next: Next,
) -> Response {
    let Some(slot) = request.extensions().get::<FormSlot>().cloned() else {
        return next.run(request).await;
    };
    let (head, body) = request.into_parts();
    let unread = UnreadBody::default();
    let response = next.run(Request::from_parts(head.clone(), unread.lend(body))).await;
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || response.extensions().get::<IsPage>().is_some() {
        return response;
    }
    let headers = &head.headers;
    match unread.take() {
        Some(body) if RefusedForm::is_own(headers) => slot.read(&head, body).await,
        Some(body) => body::discard(&head, body, 0).await,
        None => {}
    }
    let sent = match (slot.take(), body::boundary_of(headers)) {
        (FormBody::Encoded(bytes), Some(boundary)) => {
            FormBody::WithFile(upload::texts_of(bytes, boundary).await)
        }
        (sent, _) => sent,
    };
    let Some(form) = sent.form(head.uri.path()) else {
        return response;
    };
    let current = response.extensions().get::<FormToken>().cloned();
    let Ok(Some(form)) = form.checked(&engine, audience, headers, current.as_ref()).await else {
        return response;
    };
    if status == StatusCode::UNAUTHORIZED
        && let Ok(page) = sign_in_again(&engine, audience, &options, headers, &form).await
    {
        return with_headers_of(&response, page);
    }
    slot.set(FormBody::Refused(form));
    response
}

/// A page in place of an answer keeps that answer's cookies and challenge.
fn with_headers_of(response: &Response, mut page: Response) -> Response {
    for name in [header::SET_COOKIE, header::WWW_AUTHENTICATE] {
        for value in response.headers().get_all(&name) {
            page.headers_mut().append(&name, value.clone());
        }
    }
    page
}

/// Reads a form that needs no sign-in: a small one, or one that carries a refused form.
pub(super) async fn read_open_form(request: Request, next: Next) -> Result<Response, ApiError> {
    let Some(slot) = request.extensions().get::<FormSlot>().cloned() else {
        return Ok(next.run(request).await);
    };
    body::require_form(request.headers())?;
    let (head, form) = request.into_parts();
    let bytes = slot.read_open(&head, form).await?;
    Ok(next.run(with_form(head, bytes)).await)
}

/// Takes the body of a request back if the handler did not read it.
#[derive(Clone, Default)]
struct UnreadBody(Arc<Mutex<Option<Body>>>);

impl UnreadBody {
    fn lend(&self, body: Body) -> Body {
        Body::new(LentBody { body, is_read: false, unread: self.clone() })
    }

    fn take(&self) -> Option<Body> {
        self.0.lock().take()
    }
}

struct LentBody {
    body: Body,
    is_read: bool,
    unread: UnreadBody,
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_read = true;
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if !self.is_read {
            let body = std::mem::replace(&mut self.body, Body::empty());
            *self.unread.0.lock() = Some(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::post;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn form_without_memory_is_told_from_one_that_is_too_large() {
        let router: Router = Router::new()
            .route("/", post(|| async { "read" }))
            .layer(axum::middleware::from_fn(read_open_form))
            .layer(Extension(FormSlot::default()));
        let _all = MEMORY.try_acquire_many(u32::try_from(MAX_ALL_KIB).unwrap()).unwrap();
        for (kib, status) in [(16, 200), (17, 503), (2_064, 503), (2_065, 413)] {
            let form = Request::post("/").header("content-type", "application/x-www-form-urlencoded");
            let form = form.body(Body::from(vec![b'a'; kib << 10])).unwrap();
            assert_eq!(router.clone().oneshot(form).await.unwrap().status(), status, "{kib} KiB");
        }
    }
}
