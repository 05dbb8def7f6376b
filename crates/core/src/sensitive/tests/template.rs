//! Random parts of the corpus: `{{hex 32}}` in a text is 32 made-up digits.
//!
//! They are made when the test runs, the same each time, so that no text in the
//! repository is or looks like a secret.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::api_key::ApiKeySecret;

const DIGITS: &str = "0123456789";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Fills in every `{{name argument…}}` whose name is known; others stay.
pub(super) fn fill_in(text: &str, seed: &str) -> String {
    let mut random = Random(u64::from(crc32fast::hash(seed.as_bytes())));
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        let part = after.split_once("}}").and_then(|(part, after)| Some((made(part, &mut random)?, after)));
        if let Some((part, after)) = part {
            filled.push_str(&part);
            rest = after;
        } else {
            filled.push_str("{{");
            rest = after;
        }
    }
    filled.push_str(rest);
    filled
}

/// The meaning of a part.
fn made(part: &str, random: &mut Random) -> Option<String> {
    let (name, arguments) = part.split_once(' ').unwrap_or((part, ""));
    let length = || arguments.parse::<usize>().ok();
    Some(match name {
        "digits" => random.text(&[DIGITS], length()?),
        "hex" => random.text(&[DIGITS, "abcdef"], length()?),
        "HEX" => random.text(&[DIGITS, "ABCDEF"], length()?),
        "lower" => random.text(&[DIGITS, LOWER], length()?),
        "upper" => random.text(&[DIGITS, UPPER], length()?),
        "base32" => random.text(&["234567", UPPER], length()?),
        "letters" => random.text(&[LOWER, UPPER], length()?),
        "base62" => random.text(&[DIGITS, LOWER, UPPER], length()?),
        "base64" => random.text(&[DIGITS, LOWER, UPPER, "+/"], length()?),
        "base64url" => random.text(&[DIGITS, LOWER, UPPER, "-_"], length()?),
        "bech32" => random.text(&["QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"], length()?),
        "password" => {
            format!("{}{}{}", random.text(&[UPPER], 2), random.text(&[LOWER, DIGITS], length()?), "7!q")
        }
        "lines" => lines(random, length()?, "\n"),
        "joined_lines" => lines(random, length()?, "\\n"),
        "card" => card(arguments, random, 0)?,
        "no_card" => card(arguments, random, 1)?,
        "keepsake_key" => {
            ApiKeySecret::from_random(std::array::from_fn(|_| random.byte())).expose().to_owned()
        }
        "jwt" => jwt(random),
        "basic" => STANDARD.encode(format!("{arguments}:{}", random.text(&[LOWER, DIGITS], 14))),
        "discord_user" => URL_SAFE_NO_PAD.encode(random.text(&["123456789"], 18)),
        "uuid" => [8, 4, 4, 4, 12].map(|length| random.text(&[DIGITS, "abcdef"], length)).join("-"),
        _ => return None,
    })
}

fn lines(random: &mut Random, count: usize, separator: &str) -> String {
    let lines = (0..count).map(|_| random.text(&[DIGITS, LOWER, UPPER, "+/"], 64));
    lines.collect::<Vec<_>>().join(separator)
}

/// A number that starts as asked, has as many digits, and misses Luhn by `off`.
fn card(arguments: &str, random: &mut Random, off: u8) -> Option<String> {
    let (prefix, form) = arguments.split_once(' ')?;
    let length = form.bytes().filter(|&byte| byte == b'#').count();
    let mut digits: Vec<u8> = prefix.bytes().map(|byte| byte - b'0').collect();
    while digits.len() + 1 < length {
        digits.push(random.byte() % 10);
    }
    let weighed = digits.iter().rev().enumerate().map(|(place, &digit)| match (place % 2, digit) {
        (0, 5..) => 2 * digit - 9,
        (0, _) => 2 * digit,
        _ => digit,
    });
    let sum: u32 = weighed.map(u32::from).sum();
    let check = u8::try_from((10 - sum % 10) % 10).ok()?;
    digits.push((check + off) % 10);
    let mut digits = digits.into_iter().map(|digit| char::from(digit + b'0'));
    form.chars().map(|sign| if sign == '#' { digits.next() } else { Some(sign) }).collect()
}

fn jwt(random: &mut Random) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","typ":"JWT"}"#);
    let subject = random.text(&[LOWER], 8);
    let payload = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"{subject}","exp":1767225600}}"#));
    format!("{header}.{payload}.{}", random.text(&[DIGITS, LOWER, UPPER, "-_"], 86))
}

/// Numbers that are the same in each run (the generator known as `SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    fn text(&mut self, alphabets: &[&str], length: usize) -> String {
        let alphabet = alphabets.concat().into_bytes();
        let letters = (0..length).map(|_| {
            let position = self.next() % alphabet.len() as u64;
            char::from(alphabet[usize::try_from(position).unwrap_or_default()])
        });
        letters.collect()
    }
}
