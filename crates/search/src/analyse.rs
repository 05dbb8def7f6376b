//! Text to terms: the one analyser for every language and both databases.
//!
//! Words are found by Unicode's word boundaries and folded. Text in scripts without
//! spaces (Han, kana, Hangul, Thai and similar) becomes pairs of neighbouring
//! characters. Identifiers and compounds (`retry_count`, `HTTPServer`, `a.b.c`,
//! `well-known`) give their parts and the joined whole, all at one position. The
//! work is linear in the text, and no term is longer than
//! [`MAX_TERM_BYTES`](crate::MAX_TERM_BYTES).

use std::ops::{Range, RangeInclusive};

use unicode_script::{Script, UnicodeScript};
use unicode_segmentation::UnicodeSegmentation;

use crate::fold::{MAX_TERM_BYTES, fold_into};

/// Bytes of a text that are analysed; search does not find the text after them.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// Maximum parts of one compound; the rest of a longer one is a new compound.
const MAX_PARTS: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word, or a part of a compound at the same position.
    Word,
    /// The joined parts of a compound; follows the parts.
    Compound,
    /// Two neighbouring characters of a script without spaces.
    Pair,
    /// A character of such a script without a neighbour of the same script.
    Single,
}

#[derive(Debug, Clone)]
pub(crate) struct Token<'a> {
    pub(crate) term: &'a str,
    pub(crate) position: u32,
    /// The bytes of the text that the term comes from.
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
}

/// Passes every term of `text` to `sink`, and returns the number of positions,
/// which is the length of the text.
pub(crate) fn analyse(text: &str, sink: impl FnMut(Token<'_>)) -> u32 {
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    let mut analysis = Analysis::of(sink);
    analysis.take(text);
    analysis.end()
}

/// A script without spaces between words, or with endings written onto words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnspacedScript {
    Han,
    Hiragana,
    Katakana,
    Hangul,
    Other,
}

/// The script of `letter`, for most letters of the scripts without spaces: the
/// letters that folding does not change. A fast path of [`unspaced`] with the same
/// result.
const fn plain_unspaced(letter: char) -> Option<UnspacedScript> {
    match letter {
        '一'..='\u{9fef}' | '\u{3400}'..='\u{4db5}' => Some(UnspacedScript::Han),
        'ぁ'..='ゖ' => Some(UnspacedScript::Hiragana),
        'ァ'..='ヺ' => Some(UnspacedScript::Katakana),
        '가'..='힣' => Some(UnspacedScript::Hangul),
        _ => None,
    }
}

/// The script of a letter that is always a word by itself. By Unicode's rules,
/// letters of these two scripts are never joined to the letter before them.
const fn plain_word(letter: char) -> Option<UnspacedScript> {
    match plain_unspaced(letter) {
        script @ Some(UnspacedScript::Han | UnspacedScript::Hiragana) => script,
        _ => None,
    }
}

/// Whether `letter` certainly does not belong to the letter before it: it is not a
/// mark, a format character or a joiner. `false` does not mean the opposite.
const fn is_apart(letter: char) -> bool {
    matches!(letter, '\0'..='~' | '\u{3000}'..='\u{3020}' | '！'..='～') || plain_unspaced(letter).is_some()
}

/// The first byte, in UTF-8, of the characters from U+3000 to U+9FFF.
const WIDE_BYTES: RangeInclusive<u8> = 0xe3..=0xe9;

/// The script of `letter`, if the script has no spaces.
pub(crate) fn unspaced(letter: char) -> Option<UnspacedScript> {
    if letter < '\u{e00}' {
        return None;
    }
    if let Some(script) = plain_unspaced(letter) {
        return Some(script);
    }
    match letter {
        // Shared by both kana: the long vowel and the halfwidth voicing marks.
        'ー' | 'ｰ' | 'ﾞ' | 'ﾟ' => return Some(UnspacedScript::Katakana),
        _ => {}
    }
    match letter.script() {
        Script::Han => Some(UnspacedScript::Han),
        Script::Hiragana => Some(UnspacedScript::Hiragana),
        Script::Katakana => Some(UnspacedScript::Katakana),
        Script::Hangul => Some(UnspacedScript::Hangul),
        Script::Thai | Script::Lao | Script::Khmer | Script::Myanmar | Script::Bopomofo | Script::Yi => {
            Some(UnspacedScript::Other)
        }
        _ => None,
    }
}

/// The compound that is being read.
#[derive(Default)]
struct Compound {
    parts: usize,
    /// The joined parts, without the characters between them, except between digits.
    joined: String,
    range: Range<usize>,
}

/// The run of characters of one script that is being read.
#[derive(Default)]
struct Run {
    script: Option<UnspacedScript>,
    last: Option<(char, Range<usize>)>,
    length: usize,
    end: usize,
}

struct Analysis<Sink> {
    sink: Sink,
    /// The position of the next word.
    position: u32,
    compound: Compound,
    run: Run,
    term: String,
}

impl<Sink: FnMut(Token<'_>)> Analysis<Sink> {
    fn of(sink: Sink) -> Self {
        Self {
            sink,
            position: 0,
            compound: Compound::default(),
            run: Run::default(),
            term: String::with_capacity(MAX_TERM_BYTES),
        }
    }

    /// Ends the text and returns the number of positions.
    fn end(mut self) -> u32 {
        self.end_compound();
        self.end_run();
        self.position
    }

    /// Analyses a text. Letters that are words by themselves skip the search for word
    /// boundaries, which would take most of the time in such a text.
    fn take(&mut self, text: &str) {
        let (mut from, mut at) = (0, 0);
        while let Some(wide) = text.as_bytes()[at..].iter().position(|byte| WIDE_BYTES.contains(byte)) {
            at += wide;
            let mut letters = text[at..].chars();
            let Some(letter) = letters.next() else {
                break;
            };
            let end = at + letter.len_utf8();
            if let Some(script) = plain_word(letter)
                && letters.next().is_none_or(is_apart)
            {
                self.take_words(text, from..at);
                self.begin_run(script, at..end);
                self.pair_up(letter, at..end);
                from = end;
            }
            at = end;
        }
        self.take_words(text, from..text.len());
    }

    fn take_words(&mut self, text: &str, range: Range<usize>) {
        for (start, word) in text[range.clone()].unicode_word_indices() {
            self.take_word(text, range.start + start, word);
        }
    }

    fn take_word(&mut self, text: &str, start: usize, word: &str) {
        if word.is_ascii() {
            return self.take_spaced(text, start, word);
        }
        let mut spaced_from = start;
        let mut letters = word.char_indices().peekable();
        while let Some((offset, letter)) = letters.next() {
            let Some(script) = unspaced(letter) else {
                continue;
            };
            let at = start + offset;
            let mut end = at + letter.len_utf8();
            while let Some((offset, mark)) = letters.next_if(|(_, next)| continues(*next)) {
                end = start + offset + mark.len_utf8();
            }
            if spaced_from < at {
                self.take_spaced(text, spaced_from, &text[spaced_from..at]);
            }
            spaced_from = end;
            self.take_unspaced(script, &text[at..end], at..end);
        }
        let end = start + word.len();
        if spaced_from < end {
            self.take_spaced(text, spaced_from, &text[spaced_from..end]);
        }
    }

    /// Takes a character of a run, and advances the position by one.
    fn take_unspaced(&mut self, script: UnspacedScript, character: &str, range: Range<usize>) {
        self.begin_run(script, range.clone());
        let mut letters = character.chars();
        if let (Some(letter), None) = (letters.next(), letters.next())
            && plain_unspaced(letter).is_some()
        {
            return self.pair_up(letter, range);
        }
        self.term.clear();
        fold_into(character, &mut self.term);
        let folded = std::mem::take(&mut self.term);
        for letter in folded.chars().filter(|letter| letter.is_alphanumeric() || *letter == 'ー') {
            self.pair_up(letter, range.clone());
        }
        self.term = folded;
    }

    /// Begins a run with the character at `range`, unless a run continues there.
    fn begin_run(&mut self, script: UnspacedScript, range: Range<usize>) {
        self.end_compound();
        if self.run.script != Some(script) || self.run.end != range.start {
            self.end_run();
        }
        self.run.script = Some(script);
        self.run.end = range.end;
    }

    fn pair_up(&mut self, letter: char, range: Range<usize>) {
        if let Some((before, from)) = self.run.last.replace((letter, range.clone())) {
            let mut pair = [0; 8];
            let middle = before.encode_utf8(&mut pair).len();
            let end = middle + letter.encode_utf8(&mut pair[middle..]).len();
            (self.sink)(Token {
                term: std::str::from_utf8(&pair[..end]).unwrap_or_default(),
                position: self.position - 1,
                range: from.start..range.end,
                kind: Kind::Pair,
            });
        }
        self.run.length += 1;
        self.position += 1;
    }

    fn end_run(&mut self) {
        if self.run.script.is_none() {
            return;
        }
        let run = std::mem::take(&mut self.run);
        if let (1, Some((letter, range))) = (run.length, run.last) {
            let mut buffer = [0; 4];
            (self.sink)(Token {
                term: letter.encode_utf8(&mut buffer),
                position: self.position - 1,
                range,
                kind: Kind::Single,
            });
        }
    }

    /// Takes a word of a script with spaces. It is a part of the previous compound if
    /// only a hyphen is between them.
    fn take_spaced(&mut self, text: &str, start: usize, word: &str) {
        self.end_run();
        let continues_compound = self.compound.parts > 0
            && self.compound.parts < MAX_PARTS
            && is_hyphen(&text[self.compound.range.end..start]);
        if !continues_compound {
            self.end_compound();
        }
        if !continues_compound && is_plain(word) && !starts_with_hyphen(&text[start + word.len()..]) {
            self.term.clear();
            fold_into(word, &mut self.term);
            // A lone sign that only modifies letters folds to nothing.
            if self.term.is_empty() {
                return;
            }
            (self.sink)(Token {
                term: &self.term,
                position: self.position,
                range: start..start + word.len(),
                kind: Kind::Word,
            });
            self.position += 1;
            return;
        }
        self.take_parts(start, word);
    }

    fn take_parts(&mut self, start: usize, word: &str) {
        let end = start + word.len();
        if word.len() > 3 && word.is_char_boundary(word.len() - 3) && is_negation(&word[word.len() - 3..]) {
            self.term.clear();
            fold_into(&word[..word.len() - 2], &mut self.term);
            let cut = self.term.floor_char_boundary(MAX_TERM_BYTES - 1);
            self.term.truncate(cut);
            self.term.push('t');
            self.take_part(start..end, None);
        } else {
            let word = without_contraction(word);
            for range in Parts::of(word) {
                if self.compound.parts == MAX_PARTS {
                    self.end_compound();
                }
                self.term.clear();
                fold_into(&word[range.clone()], &mut self.term);
                let before = word[..range.start].chars().next_back();
                self.take_part(start + range.start..start + range.end, before);
            }
        }
        if self.compound.parts > 0 {
            // The end of the word: a hyphen directly after it continues the compound.
            self.compound.range.end = end;
        }
    }

    /// Takes the part in `self.term`; `before` is the character before it.
    fn take_part(&mut self, range: Range<usize>, before: Option<char>) {
        if self.term.is_empty() {
            return;
        }
        let compound = &mut self.compound;
        if compound.parts == 0 {
            compound.range = range.clone();
        }
        if is_digit_at(compound.joined.chars().next_back()) && is_digit_at(self.term.chars().next()) {
            // Without the separator, `3.14` and `2026-01-31` would be other numbers.
            let between = before.filter(|letter| !letter.is_alphanumeric());
            compound.joined.push(between.unwrap_or('-'));
        }
        if compound.joined.len() <= MAX_TERM_BYTES {
            compound.joined.push_str(&self.term);
        }
        compound.parts += 1;
        compound.range.end = range.end;
        (self.sink)(Token { term: &self.term, position: self.position, range, kind: Kind::Word });
    }

    fn end_compound(&mut self) {
        if self.compound.parts == 0 {
            return;
        }
        if self.compound.parts > 1 && self.compound.joined.len() <= MAX_TERM_BYTES {
            (self.sink)(Token {
                term: &self.compound.joined,
                position: self.position,
                range: self.compound.range.clone(),
                kind: Kind::Compound,
            });
        }
        self.compound.parts = 0;
        self.compound.joined.clear();
        self.position += 1;
    }
}

fn is_hyphen(between: &str) -> bool {
    matches!(between, "-" | "\u{2010}" | "\u{2011}")
}

fn starts_with_hyphen(rest: &str) -> bool {
    rest.starts_with(['-', '\u{2010}', '\u{2011}'])
}

/// Whether a word has no parts: letters of one case (except the first), or digits.
fn is_plain(word: &str) -> bool {
    let mut letters = word.chars();
    let Some(first) = letters.next() else {
        return true;
    };
    if first.is_ascii_digit() {
        return letters.all(|letter| letter.is_ascii_digit());
    }
    let mut rest = letters.clone();
    first.is_alphabetic()
        && (letters.all(|letter| letter.is_lowercase() || is_mark(letter))
            || (first.is_uppercase() && rest.all(|letter| letter.is_uppercase() || is_mark(letter))))
}

/// Whether a character modifies the letter before it and separates nothing.
fn is_mark(letter: char) -> bool {
    !letter.is_ascii() && unicode_normalization::char::is_combining_mark(letter)
}

fn is_digit_at(letter: Option<char>) -> bool {
    letter.is_some_and(|letter| letter.is_ascii_digit())
}

/// Whether the last three bytes of a word are those of `don't`.
fn is_negation(ending: &str) -> bool {
    ending.eq_ignore_ascii_case("n't")
}

/// Whether a character belongs to the one before it, in a script without spaces.
fn continues(letter: char) -> bool {
    !is_apart(letter) && (is_mark(letter) || matches!(letter, '\u{1160}'..='\u{11ff}'))
}

/// The word without its English contraction or possessive: `it's`, `we'll`,
/// `Anna’s`.
fn without_contraction(word: &str) -> &str {
    let Some((at, mark)) = word.char_indices().rfind(|(_, letter)| matches!(letter, '\'' | '’' | '＇'))
    else {
        return word;
    };
    let ending = &word[at + mark.len_utf8()..];
    let is_contraction =
        ["s", "ll", "re", "ve", "d", "m"].iter().any(|known| ending.eq_ignore_ascii_case(known));
    if is_contraction && at > 0 { &word[..at] } else { word }
}

/// The parts of a word. It is split at characters that are neither letters nor
/// digits, where small letters change to capitals, before the last of several
/// capitals, and between letters and digits unless that would leave a single
/// letter.
struct Parts<'a> {
    word: &'a str,
    at: usize,
}

impl<'a> Parts<'a> {
    fn of(word: &'a str) -> Self {
        Self { word, at: 0 }
    }
}

impl Iterator for Parts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at + self.word[self.at..].find(|letter: char| !is_separator(letter))?;
        let mut before: Option<char> = None;
        let mut letters = 0;
        let mut capital_at = start;
        let mut rest = self.word[start..].char_indices().peekable();
        self.at = self.word.len();
        while let Some((offset, letter)) = rest.next() {
            let at = start + offset;
            if is_mark(letter) {
                continue;
            }
            if is_separator(letter) {
                self.at = at;
                break;
            }
            let mut next_is_letter = || rest.peek().is_some_and(|(_, next)| next.is_alphabetic());
            let is_cut = before.is_some_and(|last| {
                (last.is_lowercase() && letter.is_uppercase())
                    || (letters > 1 && last.is_alphabetic() && letter.is_numeric())
                    || (last.is_numeric() && letter.is_alphabetic() && next_is_letter())
            });
            if is_cut {
                self.at = at;
                break;
            }
            let is_after_capitals = before.is_some_and(char::is_uppercase) && letter.is_lowercase();
            if is_after_capitals && capital_at > start {
                self.at = capital_at;
                break;
            }
            if letter.is_uppercase() {
                capital_at = at;
            }
            letters += usize::from(letter.is_alphabetic());
            before = Some(letter);
        }
        Some(start..self.at)
    }
}

fn is_separator(letter: char) -> bool {
    !letter.is_alphanumeric() && !is_mark(letter)
}

#[cfg(test)]
mod tests;
