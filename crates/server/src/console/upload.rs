//! Forms of the console that send a file.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures::stream;
use keepsake_console::{MAX_UPLOAD_BYTES, Upload};
use keepsake_engine::Engine;
use multer::{Constraints, Multipart, SizeLimit};

use super::refused::FormSlot;
use crate::body::{ReceivedRequest, boundary_of};
use crate::envelope::deadline_of;
use crate::error::ApiError;

/// Limit of a text field.
const MAX_TEXT_BYTES: u64 = 16 << 10;
const FILE: &str = "file";
const MAX_FIELDS: usize = 16;

pub(super) async fn read_upload(
    State(engine): State<Engine>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let boundary = boundary_of(request.headers());
    let boundary = boundary.ok_or_else(|| ApiError::unsupported_media_type("multipart/form-data"))?;
    let received = ReceivedRequest::read(request, &engine, MAX_UPLOAD_BYTES).await?;
    let mut head = received.head;
    let mut upload = Upload {
        fields: Vec::new(),
        file_name: String::new(),
        file: Bytes::new(),
        deadline: deadline_of(&head),
    };
    parse(received.bytes, boundary, &mut upload).await?;
    if let Some(slot) = head.extensions.get::<FormSlot>() {
        slot.keep_texts(upload.fields.clone());
    }
    head.extensions.insert(received.principal);
    head.extensions.insert(upload);
    Ok(next.run(Request::from_parts(head, Body::empty())).await)
}

/// Splits a form into its fields and limits their sizes.
fn fields_of(body: Bytes, boundary: String) -> Multipart<'static> {
    let whole = stream::once(async { Ok::<_, Infallible>(body) });
    let sizes = SizeLimit::new().per_field(MAX_TEXT_BYTES).for_field(FILE, MAX_UPLOAD_BYTES);
    Multipart::with_constraints(whole, boundary, Constraints::new().size_limit(sizes))
}

/// Reads the texts before the file in the beginning of a form.
pub(super) async fn texts_of(start: Bytes, boundary: String) -> Vec<(String, String)> {
    let mut fields = fields_of(start, boundary);
    let mut texts = Vec::new();
    while texts.len() < MAX_FIELDS
        && let Ok(Some(field)) = fields.next_field().await
        && field.name() != Some(FILE)
    {
        let name = field.name().unwrap_or_default().to_owned();
        match field.text().await {
            Ok(text) => texts.push((name, text)),
            Err(_) => break,
        }
    }
    texts
}

async fn parse(body: Bytes, boundary: String, upload: &mut Upload) -> Result<(), ApiError> {
    let malformed =
        |error: multer::Error| ApiError::invalid_request(format!("the form is not valid: {error}"));
    let mut fields = fields_of(body, boundary);
    while let Some(field) = fields.next_field().await.map_err(malformed)? {
        if upload.fields.len() == MAX_FIELDS {
            let rule = format!("the form is not valid: it has more than {MAX_FIELDS} fields");
            return Err(ApiError::invalid_request(rule));
        }
        let name = field.name().unwrap_or_default().to_owned();
        if name == FILE {
            field.file_name().unwrap_or_default().clone_into(&mut upload.file_name);
            upload.file = field.bytes().await.map_err(malformed)?;
        } else {
            upload.fields.push((name, field.text().await.map_err(malformed)?));
        }
    }
    Ok(())
}
