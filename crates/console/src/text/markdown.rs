//! Markdown of memories as safe HTML.
//!
//! Agents write memories, and other people write the texts that agents read, so no part of a memory
//! is trusted. HTML within the Markdown is shown as text, images become links, and the result
//! passes a sanitiser that knows few elements and attributes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{Alignment, CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd, html};

use super::code::{self, Language, Marker};
use super::markup::Markup;

/// Longer texts are not rendered.
const MAX_BYTES: usize = 96 << 10;
/// Texts that become more HTML are not rendered.
const MAX_HTML_BYTES: usize = 120 << 10;
/// Texts with deeper nested elements are not rendered: an HTML parser passes over all open elements
/// for each new one.
const MAX_DEPTH: usize = 32;
/// Characters of a cell that makes its column wide.
const LONG_CELL: usize = 40;
/// Schemes of links. A link of another scheme, or a relative one, is shown as text.
const SCHEMES: [&str; 3] = ["http", "https", "mailto"];
const ELEMENTS: &str = "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong sub sup table tbody \
    td th thead tr ul";

static SANITISER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    // Of boxes of tasks, of parts of code and of cells: HTML within the Markdown is text.
    let mut classes = HashSet::from(["task", "done", "hidden"]);
    classes.extend(code::CLASSES);
    builder
        .tags(ELEMENTS.split(' ').collect())
        .clean_content_tags(HashSet::from(["script", "style"]))
        .tag_attributes(HashMap::from([
            ("a", HashSet::from(["href", "title"])),
            ("ol", HashSet::from(["start"])),
        ]))
        .allowed_classes(HashMap::from([
            ("span", classes),
            ("td", HashSet::from(["center", "right", "long"])),
            ("th", HashSet::from(["center", "right", "long"])),
        ]))
        .url_schemes(SCHEMES.into())
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer nofollow"));
    builder
});

/// `None`: the text is too long or too deep, and must be shown unrendered. Takes up to some tens of
/// milliseconds.
pub(crate) fn render(text: &str) -> Option<Markup> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut marker = Marker::default();
    let rendered = render_with(text, Some(&mut marker));
    // The marks of code may make the HTML too long.
    rendered.or_else(|| marker.is_used().then(|| render_with(text, None)).flatten())
}

/// Without a marker, code is plain.
fn render_with(text: &str, marker: Option<&mut Marker>) -> Option<Markup> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut depth = 0_usize;
    let mut is_too_deep = false;
    let events = Parser::new_ext(text, options).into_offset_iter().take_while(|(event, _)| {
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_too_deep |= depth > MAX_DEPTH;
        !is_too_deep
    });
    let mut blocks = CodeBlocks { marker, open: None };
    let mut cells = Cells::default();
    let events = events.filter_map(|(event, range)| {
        let event = blocks.pass(event)?;
        Some(cells.pass(event, text.get(range).unwrap_or_default()))
    });
    let mut unsafe_html = BoundedHtml(String::with_capacity(text.len() * 2));
    let is_too_long = html::write_html_fmt(&mut unsafe_html, events).is_err();
    if is_too_long || is_too_deep {
        return None;
    }
    let rendered = Markup::trusted(SANITISER.clean(&unsafe_html.0).to_string());
    (rendered.len() <= MAX_HTML_BYTES).then_some(rendered)
}

/// Marks the blocks of code whose language is known.
struct CodeBlocks<'m> {
    marker: Option<&'m mut Marker>,
    /// Language and text of the block that is not at its end.
    open: Option<(Language, String)>,
}

impl CodeBlocks<'_> {
    /// `None`: the end of the block shows the event.
    fn pass<'t>(&mut self, event: Event<'t>) -> Option<Event<'t>> {
        let Some(marker) = &mut self.marker else {
            return Some(inert(event));
        };
        match &event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                self.open = Language::of(info).map(|language| (language, String::new()));
            }
            Event::Text(text) => {
                if let Some((_, code)) = &mut self.open {
                    code.push_str(text);
                    return None;
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some((language, code)) = self.open.take() {
                    let html = marker.html(language, &code) + "</code></pre>\n";
                    return Some(Event::Html(html.into()));
                }
            }
            _ => {}
        }
        Some(inert(event))
    }
}

/// Gives the cells of tables classes for their alignment and for a long text: the sanitiser removes styles.
#[derive(Default)]
struct Cells {
    alignments: Vec<Alignment>,
    column: usize,
    is_head: bool,
}

impl Cells {
    /// `source`: the Markdown of the event.
    fn pass<'t>(&mut self, event: Event<'t>, source: &str) -> Event<'t> {
        match &event {
            Event::Start(Tag::Table(alignments)) => self.alignments.clone_from(alignments),
            Event::Start(row @ (Tag::TableHead | Tag::TableRow)) => {
                self.column = 0;
                self.is_head = matches!(row, Tag::TableHead);
            }
            Event::Start(Tag::TableCell) => {
                let alignment = match self.alignments.get(self.column) {
                    Some(Alignment::Center) => Some("center"),
                    Some(Alignment::Right) => Some("right"),
                    _ => None,
                };
                self.column += 1;
                let classes: Vec<_> =
                    alignment.into_iter().chain(is_long(source).then_some("long")).collect();
                if !classes.is_empty() {
                    let element = if self.is_head { "th" } else { "td" };
                    return Event::Html(format!("<{element} class=\"{}\">", classes.join(" ")).into());
                }
            }
            _ => {}
        }
        event
    }
}

/// Whether a cell has a long text; the targets of links are not shown.
fn is_long(cell: &str) -> bool {
    let targets = cell.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let unseen: usize = targets.map(|target| target.chars().count()).sum();
    cell.trim().chars().count() > LONG_CELL + unseen
}

/// HTML of at most [`MAX_HTML_BYTES`].
struct BoundedHtml(String);

impl fmt::Write for BoundedHtml {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MAX_HTML_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// Removes everything that a browser would load or run.
fn inert(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Image { dest_url, title, .. } | Tag::Link { dest_url, title, .. }) => {
            Event::Start(Tag::Link {
                link_type: LinkType::Inline,
                dest_url: allowed(dest_url),
                title,
                id: CowStr::Borrowed(""),
            })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        // The language of a block would become a class.
        Event::Start(Tag::CodeBlock(_)) => Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)),
        Event::TaskListMarker(is_done) => Event::Html(CowStr::Borrowed(task(is_done))),
        other => other,
    }
}

/// The box of a task: a picture, since nothing on the page changes a memory, with its state in words.
const fn task(is_done: bool) -> &'static str {
    if is_done {
        "<span class=\"task done\"></span><span class=\"hidden\">done:</span> "
    } else {
        "<span class=\"task\"></span><span class=\"hidden\">to do:</span> "
    }
}

/// Empty if the link's scheme is not allowed.
fn allowed(url: CowStr<'_>) -> CowStr<'_> {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_allowed = scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.as_str()));
    if is_allowed { url } else { CowStr::Borrowed("") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn html(text: &str) -> String {
        render(text).unwrap().as_str().to_owned()
    }

    #[test]
    fn markdown_is_rendered() {
        let text = "# Title\n\n- *a*\n- **b** `c`\n- [x] d\n- [ ] e\n\n| x | y |\n|---|--:|\n| 1 | 2 |\n\
            | A sentence of more than forty characters. | [a](https://example.com/a/long/address/of/a/page) |\n\n\
            ![a cat](https://example.com/cat.png \"t\")\n\n";
        let code = |language: &str| format!("```{language}\nlet a = \"<b>\"; // c\n```\n");
        let shown = html(&format!("{text}{}{}", code("Rust"), code("unknown")));
        for part in [
            "<h1>Title</h1>",
            "<em>a</em>",
            "<code>c</code>",
            "<td>1</td><td class=\"right\">2</td>",
            "<td class=\"long\">A sentence of more than forty characters.</td><td class=\"right\"><a",
            "<a href=\"https://example.com/cat.png\"",
            "a cat",
            "<span class=\"task done\"></span>",
            "<span class=\"task\"></span>",
            "<pre><code><span class=\"code-word\">let</span> a = <span class=\"code-text\">\"&lt;b&gt;\"</span>; \
             <span class=\"code-comment\">// c</span>\n</code></pre>",
            "<pre><code>let a = \"&lt;b&gt;\"; // c\n</code></pre>",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn html_is_text() {
        for hostile in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<svg/onload=alert(1)>",
            "<iframe src=javascript:alert(1)></iframe>",
            "<style>body{display:none}</style>",
            "```html\n<script>alert(1)</script>\n```",
            "`<script>`",
            "[x](https://a.example \"\\\" onclick=\\\"alert(1)\")",
            "![x](https://a.example/)",
        ] {
            let shown = html(hostile);
            for element in ["<script", "<img", "<svg", "<iframe", "<style", "onclick=\""] {
                assert!(!shown.contains(element), "{shown}");
            }
        }
    }

    #[test]
    fn deep_or_long_markdown_is_not_rendered() {
        let nested = |depth: usize| format!("{}text\n", "> ".repeat(depth));
        let items: Vec<_> = (0..60).map(|depth| format!("{}- x\n", "  ".repeat(depth))).collect();
        // The paragraph is an element, too.
        assert!(render(&nested(MAX_DEPTH - 1)).is_some());
        for refused in [
            nested(MAX_DEPTH),
            nested(48 << 10),
            items.concat(),
            "a ".repeat(MAX_BYTES),
            // Short texts that become long HTML.
            "&".repeat(MAX_BYTES / 2),
            "- a\n".repeat(20_000),
        ] {
            assert!(render(&refused).is_none(), "{refused:.40}");
        }
    }

    #[test]
    fn only_web_and_mail_links_are_kept() {
        let shown = html("[x](https://example.com/?a=1&b=2)");
        assert!(shown.contains("href=\"https://example.com/?a=1&amp;b=2\""), "{shown}");
        assert!(shown.contains("rel=\"noopener noreferrer nofollow\""), "{shown}");
        assert!(html("<mailto:a@b.example>").contains("mailto:"));
        let hostile = "[x](javascript:alert(1)) [x](JaVaScRiPt:alert(1)) [x](java\u{1}script:alert(1)) [x](vbscript:x) [x](//evil.example) \
                       [x](data:text/html,<script>alert(1)</script>) [x](/console/sign-out) [x](file:///etc/passwd) \
                       <javascript:alert(1)> [x]:javascript:alert(1)\n\n[x]";
        for hostile in hostile.split(' ') {
            let shown = html(hostile).to_ascii_lowercase();
            for start in ["data", "vb", "/", "file", "java"] {
                assert!(!shown.contains(&format!("href=\"{start}")), "{shown}");
            }
        }
    }

    fn without_tags(html: &str) -> String {
        html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect()
    }

    proptest! {
        #[test]
        fn marked_code_keeps_its_text(
            language in prop::sample::select(vec!["rs", "py", "js", "sh", "cpp", "css", "html", "sql", "yaml"]),
            code in "[a-z0-9\"'`/*#{}()<>\\\\ \t\n$=+é日-]{0,120}",
        ) {
            let block = |language: &str| html(&format!("~~~{language}\n{code}\n~~~"));
            prop_assert_eq!(without_tags(&block(language)), without_tags(&block("")));
        }

        #[test]
        fn any_text_becomes_known_elements(text in "[<>a-z\"'`()\\[\\]!*_&;:/= \n#-]{0,200}") {
            let shown = html(&text);
            for part in shown.split('<').skip(1) {
                let name: String = part.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
                prop_assert!(ELEMENTS.split(' ').any(|known| known == name), "{}", shown);
            }
        }
    }
}
