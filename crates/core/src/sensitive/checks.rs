//! Distinguishes a secret from a placeholder, a hash, a name or a piece of code.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

#[rustfmt::skip]
const PLACEHOLDERS: [&str; 20] = [
    "example", "your", "xxxx", "placeholder", "redacted", "dummy", "changeme", "change_me", "change-me",
    "insert", "replace", "1234567", "abcdefg", "****", "....", "----", "____", "_here", "-here", "sample",
];

/// Common passwords from manuals, which are not secret.
#[rustfmt::skip]
const WELL_KNOWN_PASSWORDS: [&str; 27] = [
    "password", "passwd", "pass", "pwd", "secret", "secretpassword", "mypassword", "mysecretpassword", "pw",
    "postgres", "mysql", "mongo", "redis", "root", "admin", "guest", "user", "test", "testing", "default",
    "token", "key", "hidden", "none", "null", "password123", "x",
];

/// Words of placeholders for a password in a connection string.
#[rustfmt::skip]
const PASSWORD_PLACEHOLDERS: [&str; 8] = [
    "password", "passwd", "example", "your", "changeme", "placeholder", "secret", "redacted",
];

/// The starts of references, hashes and expressions, which are not secrets.
#[rustfmt::skip]
const OTHER_STARTS: [&str; 48] = [
    "$", "%", "{", "<", "[", "/", "./", "../", "~/", "@", "#", "&", "http:", "https:", "env:", "env.",
    "file:", "vault:", "op://", "arn:", "aws:", "sha1", "sha2", "sha5", "md5", "process.", "os.", "secrets.",
    "projects/", "ssm:", "keyring:", "argon2", "bcrypt", "gcp:", "azure:", "config.", "settings.", "self.",
    "this.", "ref:", "ssh-", "blake", "var.", "data.", "*", "ENC[", "!", ":",
];

/// Longer values are neither passwords nor keys, whatever their label.
const MAX_PASSWORD_BYTES: usize = 256;
const MAX_CREDENTIAL_BYTES: usize = 4_096;

/// Whether a text contains a word of [`PLACEHOLDERS`], or varies too little to be random.
pub(super) fn is_placeholder(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    PLACEHOLDERS.iter().any(|word| lower.contains(word)) || distinct(text) < min_distinct(text.len())
}

/// The minimum number of different characters in a random text of this length.
fn min_distinct(length: usize) -> usize {
    match length {
        0..8 => 2,
        8..16 => 5,
        16..30 => 7,
        _ => 8,
    }
}

fn distinct(text: &str) -> usize {
    let mut seen = [false; 256];
    for byte in text.bytes() {
        seen[usize::from(byte)] = true;
    }
    seen.iter().filter(|&&is_seen| is_seen).count()
}

/// Whether a text has digits and letters and is not a placeholder, as required of a
/// token with a known prefix.
pub(super) fn is_random(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !is_placeholder(text)
}

/// Whether a text has letters of both cases and is not a placeholder.
pub(super) fn is_mixed_case(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_lowercase())
        && text.bytes().any(|byte| byte.is_ascii_uppercase())
        && !is_placeholder(text)
}

/// [`is_mixed_case`] with digits: base64 of random bytes, not hexadecimal.
pub(super) fn is_random_base64(text: &str) -> bool {
    is_mixed_case(text) && is_random(text)
}

/// Whether the value after a token or key label is a credential.
pub(super) fn is_credential(text: &str) -> bool {
    (16..=MAX_CREDENTIAL_BYTES).contains(&text.len())
        && is_random(text)
        && entropy(text) >= 3.2
        && !is_something_else(text)
}

/// Whether the value after a password label is a password.
///
/// A short password must have three of these: lower case, upper case, digits,
/// signs. Strong passwords do; words and names do not.
pub(super) fn is_password(text: &str) -> bool {
    if !(8..=MAX_PASSWORD_BYTES).contains(&text.len()) || is_placeholder(text) || is_something_else(text) {
        return false;
    }
    let has = |class: fn(&u8) -> bool| usize::from(text.as_bytes().iter().any(class));
    let classes = has(u8::is_ascii_lowercase)
        + has(u8::is_ascii_uppercase)
        + has(u8::is_ascii_digit)
        + has(|byte| byte.is_ascii_punctuation() && !matches!(byte, b'_' | b'-' | b'.' | b'/' | b':'));
    classes >= 3 || text.len() >= 16 && is_random(text) && entropy(text) >= 3.5
}

/// Whether a password in a URL or connection string is a real one.
pub(super) fn is_connection_password(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_variable = text.starts_with(['$', '<', '{', '[', '%', '*']) && !text.starts_with("%2")
        || text.contains("${")
        || text.contains("{{");
    let is_port = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_masked = text.bytes().all(|byte| matches!(byte, b'*' | b'x' | b'X' | b'.' | b'-' | b'_'));
    // `PASSWORD`, `DB_PASS`: placeholders for a secret.
    let is_name = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let is_word = PASSWORD_PLACEHOLDERS.iter().any(|word| lower.contains(word));
    !(text.len() < 4
        || text.len() > MAX_PASSWORD_BYTES
        || is_variable
        || is_port
        || is_masked
        || is_name
        || is_word
        || WELL_KNOWN_PASSWORDS.contains(&lower.as_str()))
}

/// Shannon entropy in bits per byte, from the byte frequencies of the text.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let total = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX));
    let bits = |count: &u32| {
        let share = f64::from(*count) / total;
        -share * share.log2()
    };
    counts.iter().filter(|&&count| count > 0).map(bits).sum()
}

/// Whether a labelled value is a reference, a name, an id or a hash.
fn is_something_else(text: &str) -> bool {
    OTHER_STARTS.iter().any(|start| text.starts_with(start))
        || is_uuid(text)
        || is_words(text)
        || is_time(text)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(position, byte)| match position {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Whether a text consists of words and numbers, like a name: `orders-api-v2`,
/// `config.dbPassword2`, `X509KeyUsage`. Random text changes between upper case,
/// lower case and digits at about every second character.
fn is_words(text: &str) -> bool {
    const MIN_MEAN_LENGTH: usize = 4;
    const MAX_DIGITS: usize = 5;
    let mut pieces = 0;
    for part in text.split(['-', '_', '.', '/', ':']).filter(|part| !part.is_empty()) {
        let bytes = part.as_bytes();
        let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
        if digits > MAX_DIGITS || !bytes.iter().all(u8::is_ascii_alphanumeric) {
            return false;
        }
        let changes = bytes.windows(2).filter(|pair| {
            pair[0].is_ascii_digit() != pair[1].is_ascii_digit()
                || pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()
        });
        pieces += changes.count() + 1;
    }
    pieces * MIN_MEAN_LENGTH < text.len() + MIN_MEAN_LENGTH
}

/// Whether a text is a date or time, as `2026-01-31T10:00:00Z`.
fn is_time(text: &str) -> bool {
    text.len() <= 35 && text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.+TZ/".contains(&byte))
}

/// Whether a text is a JWT (or JWE): its first part is a JSON object with an
/// algorithm.
pub(super) fn is_jwt(text: &str) -> bool {
    let header = text.split('.').next().unwrap_or_default();
    let Ok(header) = URL_SAFE_NO_PAD.decode(header) else {
        return false;
    };
    serde_json::from_slice::<serde_json::Map<_, _>>(&header).is_ok_and(|header| header.contains_key("alg"))
}

/// Whether a text is base64 of `user:password`.
pub(super) fn is_basic_credentials(text: &str) -> bool {
    let decoded = STANDARD_NO_PAD.decode(text.trim_end_matches('='));
    decoded.is_ok_and(|decoded| {
        let user_and_password = str::from_utf8(&decoded).ok().and_then(|text| text.split_once(':'));
        user_and_password.is_some_and(|(_, password)| is_connection_password(password))
    })
}

/// Whether the first part of a Discord token is base64 of a user id.
pub(super) fn is_discord_token(text: &str) -> bool {
    let user = text.split('.').next().unwrap_or_default();
    URL_SAFE_NO_PAD
        .decode(user)
        .is_ok_and(|decoded| (17..=20).contains(&decoded.len()) && decoded.iter().all(u8::is_ascii_digit))
        && is_random_base64(text)
}

pub(super) fn is_keepsake_key(text: &str) -> bool {
    crate::api_key::ApiKeySecret::parse(text).is_ok()
}
