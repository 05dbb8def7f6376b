//! HTML that needs no escaping. Only this module and the modules beside it make such HTML.

use std::fmt::{self, Display, Write};

use keepsake_core::{MemoryPath, Timestamp, words};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters to encode: every character that RFC 3986 does not call unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// HTML that a template writes unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Markup(String);

impl Markup {
    /// The HTML must come from trusted code.
    pub(crate) const fn trusted(html: String) -> Self {
        Self(html)
    }

    /// Escapes the text.
    pub(crate) fn text(text: &str) -> Self {
        let mut html = String::with_capacity(text.len());
        push_escaped(&mut html, text);
        Self(html)
    }

    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl askama::filters::HtmlSafe for Markup {}

/// Appends a text, escaped also for use within quotes.
pub(crate) fn push_escaped(html: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
}

/// The content of a `textarea`, which drops a first newline and knows no tags.
pub(crate) fn text_area(text: &str) -> Markup {
    Markup(format!("\n{}", text.replace('&', "&amp;").replace('<', "&lt;")))
}

/// Percent-encodes a part of a path or of a query.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Characters that change the direction or the look of the text around them.
pub(crate) const fn is_deceptive(character: char) -> bool {
    matches!(
        character,
        '\u{200E}' | '\u{200F}' | '\u{061C}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}'
    ) || (character.is_ascii_control() && !matches!(character, '\t' | '\n' | '\r'))
}

/// Appends a text in which codes replace deceptive characters.
pub(crate) fn push_visible(html: &mut String, text: &str) {
    let mut rest = text;
    while let Some(position) = rest.find(is_deceptive) {
        push_escaped(html, &rest[..position]);
        let Some(character) = rest[position..].chars().next() else {
            break;
        };
        let code = u32::from(character);
        let _ = write!(html, "<span class=\"ctl\">U+{code:04X}</span>");
        rest = &rest[position + character.len_utf8()..];
    }
    push_escaped(html, rest);
}

/// A text in which codes replace deceptive characters.
pub(crate) fn visible(text: &str) -> Markup {
    let mut html = String::new();
    push_visible(&mut html, text);
    Markup(html)
}

/// Appends a path whose parts stay in their places, also those of a language from right to left.
fn push_parts(html: &mut String, path: &str) {
    for part in path.split_inclusive('/') {
        let name = part.trim_end_matches('/');
        let [start, end] = if name.is_ascii() { [""; 2] } else { ["<bdi>", "</bdi>"] };
        html.push_str(start);
        push_visible(html, name);
        html.push_str(end);
        html.push_str(&part[name.len()..]);
    }
}

/// A part of a path, or a path of an archive.
pub(crate) fn parts(path: &str) -> Markup {
    let mut html = String::new();
    push_parts(&mut html, path);
    Markup(html)
}

/// A path in a text without markup, in which its parts keep their places.
pub(crate) fn in_text(path: &str) -> String {
    let isolated = |part: &str| {
        if part.is_ascii() { part.to_owned() } else { format!("\u{2068}{part}\u{2069}") }
    };
    path.split('/').map(isolated).collect::<Vec<_>>().join("/")
}

/// The last part of a path, which may end with `/`.
pub(crate) fn name_of(path: &str) -> Markup {
    visible(path.trim_end_matches('/').rsplit('/').next().unwrap_or_default())
}

/// A time in relation to `now`, with the exact time on hover.
pub(crate) fn time(at: Timestamp, now: Timestamp) -> Markup {
    let (exact, shown) = (at.to_rfc3339(), to_the_second(at));
    let relative = relative(at, now);
    Markup(format!("<time datetime=\"{exact}\" title=\"{shown}\">{relative}</time>"))
}

/// A time as a text: `2026-01-31 09:30:00 UTC`.
pub(crate) fn to_the_second(at: Timestamp) -> String {
    let exact = at.to_rfc3339();
    format!("{} {} UTC", &exact[..10], &exact[11..19])
}

/// `none` is shown where there is no time.
pub(crate) fn time_or(at: Option<Timestamp>, now: Timestamp, none: &str) -> Markup {
    at.map_or_else(|| Markup(format!("<span class=\"none\">{none}</span>")), |at| time(at, now))
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_micros() - at.as_micros()) / 1_000_000;
    let past = seconds >= 0;
    let seconds = seconds.unsigned_abs();
    if past && seconds < 60 {
        return "just now".to_owned();
    }
    let (unit, name) = match seconds {
        0..3_600 => (60, "min"),
        3_600..86_400 => (3_600, "h"),
        86_400..15_552_000 => (86_400, "day"),
        15_552_000..63_072_000 => (2_629_800, "month"),
        _ => (31_557_600, "year"),
    };
    // A period that has just begun is whole: in 90 days, and not in 89.
    let number = if past { seconds / unit } else { (seconds + unit / 2) / unit }.max(1);
    let amount = if unit < 86_400 { format!("{number} {name}") } else { words::counted(number, name) };
    if past { format!("{amount} ago") } else { format!("in {amount}") }
}

/// A shortened id, with the full id on hover and a button that copies it.
pub(crate) fn id(full: impl Display) -> Markup {
    let full = Markup::text(&full.to_string()).0;
    let (short, button) = (short(&full), copy_button(&full));
    Markup(format!("<span class=\"id\"><code title=\"{full}\">{short}</code>{button}</span>"))
}

/// The name of a store, or its shortened id, as a link to the store.
pub(crate) fn store_named(store_id: impl Display, name: Option<&str>) -> Markup {
    match name {
        Some(name) => {
            let name = Markup::text(name).0;
            Markup(format!("<a href=\"/console/stores/{store_id}\"><bdi>{name}</bdi></a>"))
        }
        None => id_link(&store_id, &format!("/console/stores/{store_id}")),
    }
}

/// A shortened id that links to a page.
pub(crate) fn id_link(full: impl Display, href: &str) -> Markup {
    let (full, href) = (Markup::text(&full.to_string()).0, Markup::text(href).0);
    let short = short(&full);
    Markup(format!("<a class=\"id\" href=\"{href}\"><code title=\"{full}\">{short}</code></a>"))
}

/// A button that copies a text. The script makes it visible.
pub(crate) fn copy_button(text: &str) -> Markup {
    let mut html = String::from("<button type=\"button\" class=\"copy\" hidden data-copy=\"");
    push_escaped(&mut html, text);
    html.push_str("\" aria-label=\"Copy ");
    push_escaped(&mut html, &text.chars().take(60).collect::<String>());
    html.push_str("\">Copy</button>");
    Markup(html)
}

/// The prefix and the last characters of an id.
pub(crate) fn short(full: &str) -> String {
    match full.split_once('_') {
        Some((prefix, body)) if body.len() > 8 && body.is_ascii() => {
            format!("{prefix}_…{}", &body[body.len() - 6..])
        }
        _ => Markup::text(full).0,
    }
}

/// A path with its directories less prominent than its name. The name may break anywhere.
pub(crate) fn path(path: &str) -> Markup {
    let (directory, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
    let mut html = String::from("<code class=\"path\"><span class=\"dir\">");
    push_parts(&mut html, directory);
    html.push_str("/</span>");
    push_parts(&mut html, name);
    if path.ends_with('/') && path.len() > 1 {
        html.push('/');
    }
    html.push_str("</code>");
    Markup(html)
}

/// The path of a version; a redaction removes it.
pub(crate) fn path_or_redacted(named: Option<&MemoryPath>) -> Markup {
    let redacted = || Markup("<span class=\"none\">redacted</span>".to_owned());
    named.map_or_else(redacted, |named| path(named.as_str()))
}

/// A message in which the texts between backticks are code.
pub(crate) fn message(text: impl Display) -> Markup {
    let text = text.to_string();
    let parts: Vec<_> = text.split('`').collect();
    // A backtick that is not closed is a part of the text.
    if parts.len().is_multiple_of(2) {
        return Markup::text(&text);
    }
    let mut html = String::with_capacity(text.len() + 64);
    for (place, part) in parts.into_iter().enumerate() {
        let is_code = !place.is_multiple_of(2);
        html.push_str(if is_code { "<code>" } else { "" });
        push_escaped(&mut html, part);
        html.push_str(if is_code { "</code>" } else { "" });
    }
    Markup(html)
}

/// A passage of a search, with the matches marked.
pub(crate) fn snippet(text: &str) -> Markup {
    let mut html = String::with_capacity(text.len() + 64);
    for part in text.split_inclusive(['⟦', '⟧']) {
        let (plain, mark) = match part.chars().next_back() {
            Some('⟦') => (&part[..part.len() - '⟦'.len_utf8()], "<mark>"),
            Some('⟧') => (&part[..part.len() - '⟧'.len_utf8()], "</mark>"),
            _ => (part, ""),
        };
        push_visible(&mut html, plain);
        html.push_str(mark);
    }
    let open = html.matches("<mark>").count();
    let closed = html.matches("</mark>").count();
    html.push_str(&"</mark>".repeat(open.saturating_sub(closed)));
    Markup(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_inert() {
        let text = "<script>alert(\"x\")</script>' &amp;";
        let escaped = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&#39; &amp;amp;";
        assert_eq!(Markup::text(text).as_str(), escaped);
        assert_eq!(text_area("</textarea>&lt;").as_str(), "\n&lt;/textarea>&amp;lt;");
        assert!(!path("/a\"><img src=x>/b").as_str().contains("<img"));
        assert!(!copy_button("\"><img>").as_str().contains("<img"));
        assert_eq!(snippet("<b> ⟦<i>").as_str(), "&lt;b&gt; <mark>&lt;i&gt;</mark>");
        assert_eq!(message("`<b>` <i>").as_str(), "<code>&lt;b&gt;</code> &lt;i&gt;");
        assert_eq!(message("`<b>").as_str(), "`&lt;b&gt;");
    }

    #[test]
    fn deceptive_characters_are_shown_and_parts_of_paths_are_apart() {
        let shown = "a<span class=\"ctl\">U+202E</span>b<span class=\"ctl\">U+0007</span>c&lt;";
        assert_eq!(visible("a\u{202E}b\u{7}c<").as_str(), shown);
        let nested = path("/\u{5D0}/\u{5D1}/c");
        assert!(nested.as_str().ends_with("/<bdi>\u{5D0}</bdi>/<bdi>\u{5D1}</bdi>/</span>c</code>"));
        let deceptive = ['\u{61C}', '\u{200E}', '\u{200F}'].into_iter();
        for character in deceptive.chain('\u{202A}'..='\u{202E}').chain('\u{2066}'..='\u{2069}') {
            assert!(is_deceptive(character), "{character:?}");
        }
    }

    #[test]
    fn times_are_relative() {
        let now = Timestamp::from_micros(100_000_000 * 1_000_000);
        for (seconds, text) in [
            (0, "just now"),
            (60, "1 min ago"),
            (7_200, "2 h ago"),
            (179 * 86_400, "179 days ago"),
            (400 * 86_400, "13 months ago"),
            (800 * 86_400, "2 years ago"),
            (-1, "in 1 min"),
            (-90 * 86_400 + 1, "in 90 days"),
        ] {
            let at = Timestamp::from_micros(now.as_micros() - seconds * 1_000_000);
            assert_eq!(relative(at, now), text);
        }
        let html = time(Timestamp::from_micros(0), now);
        assert!(html.as_str().contains("title=\"1970-01-01 00:00:00 UTC\""), "{html}");
    }
}
