//! The style sheet, the script and the icon, under names that change with their content.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use keepsake_core::ContentHash;

use crate::page::Refusal;

const STYLE: &str = concat!(include_str!("../assets/tokens.css"), include_str!("../assets/console.css"));
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");
/// The mark in the header, as SVG.
pub const MARK: &str = include_str!("../templates/mark.html");
/// A browser may keep a file for a year: other content has another name.
const FOREVER: &str = "public, max-age=31536000, immutable";

pub(crate) struct Assets {
    pub(crate) style: String,
    pub(crate) script: String,
    pub(crate) icon: String,
}

pub(crate) static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: path_of(STYLE, "css"),
    script: path_of(SCRIPT, "js"),
    icon: path_of(ICON, "svg"),
});

/// The address of the icon.
pub fn icon() -> &'static str {
    &ASSETS.icon
}

fn path_of(content: &str, extension: &str) -> String {
    let hash = ContentHash::of(content.as_bytes()).to_string();
    format!("/console/assets/{}.{extension}", &hash[..16])
}

pub(crate) async fn file(Path(file): Path<String>) -> Result<Response, Refusal> {
    let path = format!("/console/assets/{file}");
    let (content_type, content) = if path == ASSETS.style {
        ("text/css; charset=utf-8", STYLE)
    } else if path == ASSETS.script {
        ("text/javascript; charset=utf-8", SCRIPT)
    } else if path == ASSETS.icon {
        ("image/svg+xml", ICON)
    } else {
        return Err(Refusal::NotFound("there is no such file"));
    };
    Ok(asset(content_type, content))
}

/// A file whose address changes with its content.
pub fn asset(content_type: &'static str, content: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, FOREVER),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, content).into_response()
}
