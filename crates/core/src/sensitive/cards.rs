//! Payment cards: numbers with an issuer's prefix and length that pass Luhn.

use super::{Candidate, Kind, rules};

/// The minimum and maximum number of digits. Cards with thirteen digits are no
/// longer issued, and barcodes have thirteen digits.
const MIN_DIGITS: usize = 14;
const MAX_DIGITS: usize = 19;
/// The minimum number of digits in a card's first group.
const FIRST_GROUP: usize = 4;

/// Labels directly before a number that mark it as something other than a card.
#[rustfmt::skip]
const OTHER_LABELS: [&str; 24] = [
    "order", "invoice", "tracking", "imei", "sku", "ticket", "request", "trace", "span", "job", "build",
    "iccid", "serial", "shipment", "parcel", "isbn", "ean", "gtin", "message", "tweet", "snowflake", "event",
    "run", "batch",
];

/// A run of four or more digits covers at least one position that is a multiple of
/// four after the start, so the search skips three of four bytes.
pub(super) fn find(text: &str, found: &mut Vec<Candidate>) {
    let bytes = text.as_bytes();
    let mut at = FIRST_GROUP - 1;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += FIRST_GROUP;
            continue;
        }
        let mut start = at;
        while start > 0 && bytes[start - 1].is_ascii_digit() {
            start -= 1;
        }
        let number = Number::read(bytes, start);
        let candidates = [Some(&number), number.without_last_group().as_ref()].map(|one| {
            let one = one.filter(|one| one.is_card() && stands_alone(bytes, start, one))?;
            (!has_other_label(text, start)).then_some(start..one.end)
        });
        let Some(range) = candidates.into_iter().flatten().next() else {
            at = number.first_end.max(at) + FIRST_GROUP;
            continue;
        };
        at = range.end + FIRST_GROUP - 1;
        found.push(Candidate { rank: rules::CARD_RANK, kind: Kind("payment_card".into()), range });
    }
}

/// Groups of digits with one kind of separator.
struct Number {
    digits: [u8; MAX_DIGITS],
    count: usize,
    groups: [usize; 5],
    group_count: usize,
    /// The end of the first group, and the end of the number.
    first_end: usize,
    end: usize,
}

impl Number {
    /// Reads digits and groups of digits from the first digit on.
    fn read(bytes: &[u8], start: usize) -> Self {
        let mut number = Self {
            digits: [0; MAX_DIGITS],
            count: 0,
            groups: [0; 5],
            group_count: 1,
            first_end: start,
            end: start,
        };
        let mut separator = None;
        loop {
            number.read_group(bytes);
            if number.group_count == 1 {
                number.first_end = number.end;
            }
            match bytes.get(number.end) {
                Some(&sign @ (b' ' | b'-'))
                    if separator.is_none_or(|separator| separator == sign)
                        && number.groups[0] == FIRST_GROUP
                        && number.group_count < number.groups.len()
                        && number.count < MAX_DIGITS
                        && bytes.get(number.end + 1).is_some_and(u8::is_ascii_digit) =>
                {
                    separator = Some(sign);
                    number.group_count += 1;
                    number.end += 1;
                }
                _ => return number,
            }
        }
    }

    fn read_group(&mut self, bytes: &[u8]) {
        while let Some(digit) = bytes.get(self.end).filter(|byte| byte.is_ascii_digit()) {
            if let Some(place) = self.digits.get_mut(self.count) {
                *place = digit - b'0';
            }
            self.count += 1;
            self.groups[self.group_count - 1] += 1;
            self.end += 1;
        }
    }

    /// The number without its last group, which may be a year or a check code.
    fn without_last_group(&self) -> Option<Self> {
        let (last, others) = self.groups[..self.group_count].split_last()?;
        let is_short = *last < FIRST_GROUP || others.len() == 4;
        (!others.is_empty() && is_short).then(|| Self {
            count: self.count - last,
            group_count: others.len(),
            end: self.end - last - 1,
            ..*self
        })
    }

    fn is_card(&self) -> bool {
        (MIN_DIGITS..=MAX_DIGITS).contains(&self.count)
            && self.is_grouped_as_cards_are()
            && self.is_of_an_issuer()
            && self.passes_luhn()
    }

    fn is_grouped_as_cards_are(&self) -> bool {
        match &self.groups[..self.group_count] {
            // Longer cards are rare, but 64-bit numbers are common.
            [count] => *count <= 16,
            [4, 4, 4, 4] | [4, 6, 4 | 5] => true,
            [4, 4, 4, 4, rest] => *rest <= 3,
            _ => false,
        }
    }

    fn is_of_an_issuer(&self) -> bool {
        let first = |digits: usize| {
            let digits = self.digits.iter().take(digits);
            digits.fold(0_u32, |number, digit| number * 10 + u32::from(*digit))
        };
        // By length: Diners Club, American Express, then Visa, Mastercard, Discover,
        // JCB and UnionPay.
        match self.count {
            14 => matches!(first(4), 3000..=3059 | 3095 | 3600..=3699 | 3800..=3999),
            15 => matches!(first(4), 3400..=3499 | 3700..=3799),
            16 => matches!(
                first(4),
                4000..=4999 | 5100..=5599 | 2221..=2720 | 6011 | 6440..=6599 | 3528..=3589 | 6200..=6299
            ),
            17..=19 => matches!(first(4), 4000..=4999 | 6011 | 6440..=6599 | 3528..=3589 | 6200..=6299),
            _ => false,
        }
    }

    fn passes_luhn(&self) -> bool {
        let doubled = |digit: u8| if digit > 4 { 2 * digit - 9 } else { 2 * digit };
        let digits = self.digits[..self.count].iter().rev().enumerate();
        let sum: u32 = digits
            .map(|(place, &digit)| u32::from(if place % 2 == 0 { digit } else { doubled(digit) }))
            .sum();
        sum.is_multiple_of(10)
    }
}

/// Whether the digits are not part of something longer: a hash, a fraction, an
/// account number in groups, a path.
fn stands_alone(bytes: &[u8], start: usize, number: &Number) -> bool {
    let joins = |byte: u8| byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_-+/@%~\\".contains(&byte);
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let is_grouped = number.group_count > 1;

    let before = bytes[..start].last().copied();
    let digit_before_that = is_digit(start.checked_sub(2));
    let joined_before = match before {
        Some(b'n' | b't' | b'r') => start < 2 || bytes[start - 2] != b'\\',
        Some(b'.' | b',') => digit_before_that,
        Some(b' ') => is_grouped && digit_before_that,
        Some(byte) => joins(byte),
        None => false,
    };
    let after = number.end;
    let digits_follow = is_digit(Some(after + 1));
    let joined_after = match bytes.get(after) {
        Some(b'.' | b',') => digits_follow,
        Some(b' ' | b'-') => is_grouped && (1..=4).all(|ahead| is_digit(Some(after + ahead))),
        Some(b'\\' | b'/') | None => false,
        Some(&byte) => joins(byte),
    };
    !joined_before && !joined_after
}

/// Whether a label before the number says that it is not a card.
fn has_other_label(text: &str, start: usize) -> bool {
    let from = text.floor_char_boundary(start.saturating_sub(24));
    let label = text[from..start].trim_end_matches(|sign: char| !sign.is_ascii_alphanumeric());
    let label = label.rsplit(['\n', ',', ';', '{', '|']).next().unwrap_or_default();
    let label = label.to_ascii_lowercase();
    let mut last_words = label.rsplit(|sign: char| !sign.is_ascii_alphanumeric()).take(3);
    last_words.any(|word| {
        OTHER_LABELS.contains(&word)
            || OTHER_LABELS.iter().any(|other| word.strip_suffix("id") == Some(other))
    })
}
