//! Checks the forms of secrets at the positions of their literals.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::Regex;

use super::checks::is_discord_token;
use super::forms::{BETWEEN, FORMS, Form, Start};
use super::{Candidate, Kind, blocks};

/// The maximum number of bytes that a form is matched against.
const WINDOW_BYTES: usize = 1_024;

/// Finds the range of a block that starts at a position of a text.
type Block = fn(&str, usize) -> Option<Range<usize>>;

/// The anchors of secrets without a [`Form`]: blocks of several lines.
const BLOCKS: [(&str, Block); 2] =
    [("-----BEGIN ", blocks::private_key), ("Private-Lines: ", blocks::putty_key)];

const PRIVATE_KEY_RANK: usize = 0;
const DISCORD_RANK: usize = 1;
pub(super) const CARD_RANK: usize = 2;
const FIRST_FORM_RANK: usize = 3;
/// Operators' kinds rank last: an overlapping built-in kind is more specific.
pub(super) const CUSTOM_RANK: usize = 1_000;

struct RuleMatcher {
    anchors: AhoCorasick,
    /// For each anchor, the forms and blocks that use it.
    owners: Vec<Vec<Owner>>,
    forms: Vec<(Kind, Regex)>,
}

#[derive(Clone, Copy)]
enum Owner {
    Form(usize),
    Block(usize),
}

static COMPILED: LazyLock<RuleMatcher> = LazyLock::new(RuleMatcher::new);

impl RuleMatcher {
    fn new() -> Self {
        let mut owners: HashMap<&str, Vec<Owner>> = HashMap::new();
        for (position, form) in FORMS.iter().enumerate() {
            for anchor in form.anchors {
                owners.entry(anchor).or_default().push(Owner::Form(position));
            }
        }
        for (position, (anchor, _)) in BLOCKS.iter().enumerate() {
            owners.entry(anchor).or_default().push(Owner::Block(position));
        }
        let (anchors, owners): (Vec<_>, Vec<_>) = owners.into_iter().unzip();
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(anchors)
            .expect("a hundred short literals fit");
        let compile = |form: &Form| {
            let pattern = format!(r"\A(?:{})", form.pattern.replace("{=}", BETWEEN));
            (Kind(form.kind.into()), Regex::new(&pattern).expect("a test uses each pattern"))
        };
        Self { anchors, owners, forms: FORMS.iter().map(compile).collect() }
    }
}

/// Finds the secrets in `text` that match a form, a block or a Discord token.
pub(super) fn find(text: &str, found: &mut Vec<Candidate>) {
    let compiled = &*COMPILED;
    // A label inside a value that was already checked is skipped.
    let mut checked_to = vec![0; FORMS.len()];
    for hit in compiled.anchors.find_overlapping_iter(text) {
        for owner in &compiled.owners[hit.pattern().as_usize()] {
            match *owner {
                Owner::Form(form) => {
                    if hit.start() >= checked_to[form] {
                        check_form(text, hit.start(), form, &mut checked_to[form], found);
                    }
                }
                Owner::Block(block) => {
                    if let Some(range) = BLOCKS[block].1(text, hit.start()) {
                        let kind = block_kind(text, &range);
                        found.push(Candidate { rank: PRIVATE_KEY_RANK, kind: Kind(kind.into()), range });
                    }
                }
            }
        }
    }
    find_discord_tokens(text, found);
}

/// Checks one form at the position of one of its anchors.
fn check_form(text: &str, anchor: usize, form: usize, checked_to: &mut usize, found: &mut Vec<Candidate>) {
    let (kind, pattern) = &COMPILED.forms[form];
    let bytes = text.as_bytes();
    let start = match FORMS[form].start {
        Start::Label => anchor,
        Start::Word if starts_word(bytes, anchor) => anchor,
        Start::Before(max_bytes) => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_~.-".contains(byte);
            anchor - bytes[..anchor].iter().rev().take(max_bytes).take_while(|byte| is_part(byte)).count()
        }
        Start::Word => return,
    };
    let window = &text[start..text.floor_char_boundary(start + WINDOW_BYTES)];
    let Some(captures) = pattern.captures(window) else {
        return;
    };
    let Some(secret) = captures.get(1).or_else(|| captures.get(0)) else {
        return;
    };
    let range = start + secret.start()..start + secret.end();
    // A match that reaches the end of the window may be longer.
    let range =
        range.start..if secret.end() == window.len() { word_end(bytes, range.end) } else { range.end };
    *checked_to = range.end;
    if continues(bytes, &range) || !(FORMS[form].check)(&text[range.clone()]) {
        return;
    }
    found.push(Candidate { rank: FIRST_FORM_RANK + form, kind: kind.clone(), range });
}

/// Whether a token that starts here is not the tail of a longer word.
///
/// A line break written as `\n` and an escape such as `%3D` end the previous word.
fn starts_word(bytes: &[u8], at: usize) -> bool {
    let Some(&before) = bytes[..at].last() else {
        return true;
    };
    if !(before.is_ascii_alphanumeric() || before == b'_' || before == b'-') {
        return true;
    }
    match &bytes[at.saturating_sub(3)..at] {
        [_, b'\\', b'n' | b'r' | b't'] | [b'\\', b'n' | b'r' | b't'] => true,
        [b'%', high, low] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
        _ => false,
    }
}

/// Whether the token continues, or is the start of an expression.
fn continues(bytes: &[u8], range: &Range<usize>) -> bool {
    bytes
        .get(range.end)
        .is_some_and(|&after| after.is_ascii_alphanumeric() || matches!(after, b'_' | b'(' | b'['))
}

fn word_end(bytes: &[u8], from: usize) -> usize {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-./+=".contains(byte);
    from + bytes[from..].iter().take_while(is_part).count()
}

/// Whether a built-in rule has this kind.
pub(super) fn is_kind(name: &str) -> bool {
    const WITHOUT_FORM: [&str; 5] =
        ["gcp_service_account_key", "pgp_private_key", "private_key", "discord_token", "payment_card"];
    WITHOUT_FORM.contains(&name) || FORMS.iter().any(|form| form.kind == name)
}

fn block_kind(text: &str, range: &Range<usize>) -> &'static str {
    let before = text[..range.start].trim_end_matches(|sign: char| " \t\\\"':".contains(sign));
    let block = &text[range.clone()];
    if before.ends_with("private_key") && text[range.start..].starts_with("-----BEGIN PRIVATE KEY-----\\n") {
        "gcp_service_account_key"
    } else if block.starts_with("-----BEGIN PGP") {
        "pgp_private_key"
    } else {
        "private_key"
    }
}

/// A Discord token: a user id in base64, six characters, 27 or more characters. It
/// contains no literal, but its dots are seven bytes apart.
fn find_discord_tokens(text: &str, found: &mut Vec<Candidate>) {
    static FORM: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\A[A-Za-z0-9_-]{23,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}").expect("a test uses it")
    });
    const MAX_FIRST_PART_BYTES: usize = 28;
    let bytes = text.as_bytes();
    for dot in memchr::memchr_iter(b'.', bytes) {
        if bytes.get(dot + 7) != Some(&b'.') {
            continue;
        }
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let first_part = bytes[..dot].iter().rev().take(MAX_FIRST_PART_BYTES + 1).take_while(is_part).count();
        let start = dot - first_part;
        let window = &text[start..text.floor_char_boundary(start + WINDOW_BYTES)];
        if let Some(token) = FORM.find(window) {
            let range = start..start + token.end();
            if !continues(bytes, &range) && is_discord_token(token.as_str()) {
                found.push(Candidate { rank: DISCORD_RANK, kind: Kind("discord_token".into()), range });
            }
        }
    }
}
