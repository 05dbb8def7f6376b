//! Looks for the forms of secrets where one of their literals stands.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::Regex;

use super::checks::is_discord_token;
use super::forms::{BETWEEN, FORMS, Form, Start};
use super::{Candidate, Kind, blocks};

/// A form is looked for in this many bytes from where it starts.
const WINDOW_BYTES: usize = 1_024;

/// Where a block starts in a text, if one does at a place.
type Block = fn(&str, usize) -> Option<Range<usize>>;

/// The anchors of secrets that are no [`Form`]: blocks of several lines.
const BLOCKS: [(&str, Block); 2] = [
    ("-----BEGIN ", blocks::private_key),
    ("Private-Lines: ", blocks::putty_key),
];

const PRIVATE_KEY_RANK: usize = 0;
const DISCORD_RANK: usize = 1;
pub(super) const CARD_RANK: usize = 2;
const FIRST_FORM_RANK: usize = 3;
/// What an operator names is named by what is known of it, if anything is.
pub(super) const CUSTOM_RANK: usize = 1_000;

/// The forms, ready to be looked for.
struct Compiled {
    anchors: AhoCorasick,
    /// For each anchor, whose it is.
    owners: Vec<Vec<Owner>>,
    forms: Vec<(Kind, Regex)>,
}

#[derive(Clone, Copy)]
enum Owner {
    Form(usize),
    Block(usize),
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(Compiled::new);

impl Compiled {
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
            (
                Kind(form.kind.into()),
                Regex::new(&pattern).expect("a test uses each pattern"),
            )
        };
        Self {
            anchors,
            owners,
            forms: FORMS.iter().map(compile).collect(),
        }
    }
}

/// Finds in `text` what has one of the forms.
pub(super) fn find(text: &str, found: &mut Vec<Candidate>) {
    let compiled = &*COMPILED;
    // A value that was looked at is not looked at again for a label within it.
    let mut looked_to = vec![0; FORMS.len()];
    for hit in compiled.anchors.find_overlapping_iter(text) {
        for owner in &compiled.owners[hit.pattern().as_usize()] {
            match *owner {
                Owner::Form(form) => {
                    if hit.start() >= looked_to[form] {
                        look(text, hit.start(), form, &mut looked_to[form], found);
                    }
                }
                Owner::Block(block) => {
                    if let Some(range) = BLOCKS[block].1(text, hit.start()) {
                        let kind = block_kind(text, &range);
                        found.push(Candidate {
                            rank: PRIVATE_KEY_RANK,
                            kind: Kind(kind.into()),
                            range,
                        });
                    }
                }
            }
        }
    }
    find_discord_tokens(text, found);
}

/// Looks at one form where one of its anchors stands.
fn look(text: &str, anchor: usize, form: usize, looked_to: &mut usize, found: &mut Vec<Candidate>) {
    let (kind, pattern) = &COMPILED.forms[form];
    let bytes = text.as_bytes();
    let start = match FORMS[form].start {
        Start::Label => anchor,
        Start::Word if starts_word(bytes, anchor) => anchor,
        Start::Before(most) => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_~.-".contains(byte);
            anchor
                - bytes[..anchor]
                    .iter()
                    .rev()
                    .take(most)
                    .take_while(|byte| is_part(byte))
                    .count()
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
    // What fills the window may be longer.
    let range = range.start..if secret.end() == window.len() {
        word_end(bytes, range.end)
    } else {
        range.end
    };
    *looked_to = range.end;
    if goes_on(bytes, &range) || !(FORMS[form].check)(&text[range.clone()]) {
        return;
    }
    found.push(Candidate {
        rank: FIRST_FORM_RANK + form,
        kind: kind.clone(),
        range,
    });
}

/// Whether a token that starts here is not the tail of something longer.
///
/// A line break written as `\n` and an escape such as `%3D` end what is before.
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

/// Whether a token's letters go on, or its value is the start of an expression.
fn goes_on(bytes: &[u8], range: &Range<usize>) -> bool {
    bytes
        .get(range.end)
        .is_some_and(|&after| after.is_ascii_alphanumeric() || matches!(after, b'_' | b'(' | b'['))
}

fn word_end(bytes: &[u8], from: usize) -> usize {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-./+=".contains(byte);
    from + bytes[from..].iter().take_while(is_part).count()
}

/// Whether one of our own rules finds things of this kind.
pub(super) fn is_kind(name: &str) -> bool {
    const WITHOUT_FORM: [&str; 5] = [
        "gcp_service_account_key",
        "pgp_private_key",
        "private_key",
        "discord_token",
        "payment_card",
    ];
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

/// A Discord token: a user's number in base64, six letters, 27 or more. No
/// literal is in it, but the dots are seven apart.
fn find_discord_tokens(text: &str, found: &mut Vec<Candidate>) {
    static FORM: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\A[A-Za-z0-9_-]{23,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}").expect("a test uses it")
    });
    const LONGEST_FIRST_PART: usize = 28;
    let bytes = text.as_bytes();
    for dot in memchr::memchr_iter(b'.', bytes) {
        if bytes.get(dot + 7) != Some(&b'.') {
            continue;
        }
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let first_part = bytes[..dot]
            .iter()
            .rev()
            .take(LONGEST_FIRST_PART + 1)
            .take_while(is_part)
            .count();
        let start = dot - first_part;
        let window = &text[start..text.floor_char_boundary(start + WINDOW_BYTES)];
        if let Some(token) = FORM.find(window) {
            let range = start..start + token.end();
            if !goes_on(bytes, &range) && is_discord_token(token.as_str()) {
                found.push(Candidate {
                    rank: DISCORD_RANK,
                    kind: Kind("discord_token".into()),
                    range,
                });
            }
        }
    }
}
