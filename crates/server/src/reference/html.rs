//! Markup that is already escaped.

use std::fmt;

use askama::filters::HtmlSafe;

/// Escaped markup that a template inserts unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Html(String);

impl Html {
    /// Text in which the parts between backticks become code.
    pub(super) fn prose(text: &str) -> Self {
        let escaped = escaped(text);
        let mut html = String::with_capacity(escaped.len());
        for (position, part) in escaped.split('`').enumerate() {
            match position {
                0 => {}
                odd if odd % 2 == 1 => html.push_str("<code>"),
                _ => html.push_str("</code>"),
            }
            html.push_str(part);
        }
        Self(html)
    }

    pub(super) fn code(text: &str) -> Self {
        Self(format!("<code>{}</code>", escaped(text)))
    }

    /// A link to a component of the page.
    pub(super) fn link(component: &str, text: &str) -> Self {
        let (component, text) = (escaped(component), escaped(text));
        Self(format!("<a href=\"#schema-{component}\">{text}</a>"))
    }

    /// `between` is plain text.
    pub(super) fn join(parts: &[Self], between: &str) -> Self {
        let parts: Vec<&str> = parts.iter().map(|part| part.0.as_str()).collect();
        Self(parts.join(&escaped(between)))
    }

    /// Puts plain text before the markup.
    pub(super) fn after(self, text: &str) -> Self {
        Self(escaped(text) + &self.0)
    }

    /// Puts plain text behind the markup.
    pub(super) fn before(self, text: &str) -> Self {
        Self(self.0 + &escaped(text))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Html {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl HtmlSafe for Html {}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
