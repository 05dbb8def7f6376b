//! The OpenAPI document as an HTML page that loads only its own style sheet and script. Everything
//! can be read without the script.

mod call;
mod curl;
mod document;
mod fields;
mod html;
mod page;
mod python;
mod sdk;
mod syntax;
mod types;
mod typescript;
mod value;

use std::sync::LazyLock;

use askama::Template;
use keepsake_core::ContentHash;

use crate::openapi;
use document::Document;
use page::Page;

#[derive(Debug)]
pub(crate) struct Asset {
    name: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) text: &'static str,
}

impl Asset {
    /// The name includes a hash, so that a browser may keep the file for ever.
    fn versioned_name(&self) -> String {
        let hash = ContentHash::of(self.text.as_bytes()).to_string();
        format!("{}?v={}", self.name, hash.get(..12).unwrap_or(&hash))
    }
}

pub(crate) const STYLE: Asset = Asset {
    name: "reference.css",
    media_type: "text/css; charset=utf-8",
    text: concat!(include_str!("../../console/assets/tokens.css"), include_str!("reference/reference.css")),
};

pub(crate) const SCRIPT: Asset = Asset {
    name: "reference.js",
    media_type: "text/javascript; charset=utf-8",
    text: include_str!("reference/reference.js"),
};

pub(crate) fn page() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        let document = Document::parse(openapi::text());
        let (style, script) = (STYLE.versioned_name(), SCRIPT.versioned_name());
        Page { document: &document, style, script }.render().unwrap_or_default()
    });
    &PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_every_operation_and_each_link_has_one_target() {
        let operations = openapi::text().matches("\"operationId\"").count();
        assert_eq!(page().matches("<article class=\"operation\"").count(), operations);
        for foreign in ["http://", "https://", "url(", "@import", "<style", " style=", " onclick="] {
            assert!(!page().contains(foreign) && !STYLE.text.contains(foreign), "{foreign}");
        }
        assert_eq!(page().matches("<script").count(), 1);
        assert!(page().contains("<script src=\"docs/reference.js?v="));
        let values = |start: &'static str| {
            let parts = page().split(start).skip(1);
            parts.map(|rest| rest.split('"').next().unwrap())
        };
        let mut ids: Vec<_> = values(" id=\"").collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for place in values("href=\"#") {
            assert!(ids.binary_search(&place).is_ok(), "{place}");
        }
    }
}
