//! The web console: pages that the server makes for people.
//!
//! A page's handler reads the request, calls methods of the engine that the API calls too, and
//! fills a template. `sign_in` keeps the credential in an encrypted cookie and gives it to the
//! server's authentication. `text` makes the safe pieces of pages: Markdown, differences, times.
//!
//! The crate does not know the server. Its handlers return errors as [`Refusal`]; the server turns
//! them into the API's status and message, which [`error_page`] shows.

mod assets;
mod frame;
mod names;
mod next;
mod notice;
mod operator;
mod page;
pub mod path;
mod people;
mod request;
mod screens;
mod sign_in;
mod text;
mod typed;

pub use assets::{MARK, asset, icon};
pub use operator::{operator_routes, operator_sign_in_routes};
pub use page::{
    ErrorFrame, IsPage, Refusal, download, error_page, keep_frame, keep_operator_frame, refusal_of, secured,
};
pub use request::{FormBytes, MAX_FORM_FIELDS, Upload, count_form_fields};
pub use screens::{MAX_UPLOAD_BYTES, Pages, archive_name, call_row, open_routes, tenant_pages, upload_pages};
pub use sign_in::{ConsoleOptions, FormToken, OneTimeLinks, SignInEnd, require_sign_in, sign_in_again};
pub use text::markup::encoded;
pub use typed::RefusedForm;

/// Errors of the console's paths are pages.
pub fn is_console(path: &str) -> bool {
    path == "/console" || path.starts_with("/console/")
}
