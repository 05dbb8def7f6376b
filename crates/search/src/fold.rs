//! Folds different spellings of a word into one.
//!
//! Folding removes compatibility forms, case and accents. It keeps marks that
//! distinguish words in their script, such as the voicing marks of kana.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

/// Maximum length of a term in bytes; a longer term is cut.
pub const MAX_TERM_BYTES: usize = 64;

/// Characters of a word that are folded. At least the length of the longest term.
const MAX_WORD_CHARS: usize = 192;

/// Appends the folded `word` to `folded`, up to [`MAX_TERM_BYTES`].
pub(crate) fn fold_into(word: &str, folded: &mut String) {
    let start = folded.len();
    if word.is_ascii() {
        let cut = &word[..word.len().min(MAX_TERM_BYTES)];
        folded.push_str(cut);
        folded[start..].make_ascii_lowercase();
        return;
    }
    let decomposed = word
        .chars()
        .take(MAX_WORD_CHARS)
        .nfkd()
        .flat_map(char::to_lowercase)
        .filter(|letter| !is_accent(*letter));
    let mut plain = String::with_capacity(word.len().min(4 * MAX_WORD_CHARS));
    for letter in decomposed {
        match special_folding(letter) {
            Some(letters) => plain.push_str(letters),
            None => plain.push(letter),
        }
    }
    for letter in plain.nfc() {
        if folded.len() - start + letter.len_utf8() > MAX_TERM_BYTES {
            break;
        }
        folded.push(letter);
    }
}

/// Whether a mark only modifies its letter: the accents of Latin, Greek and
/// Cyrillic, the points of Hebrew and the vowel signs of Arabic. Writers often
/// leave these marks out.
fn is_accent(letter: char) -> bool {
    matches!(letter, '\u{300}'..='\u{36f}' | '\u{5b0}'..='\u{5c7}' | '\u{64b}'..='\u{652}' | '\u{670}')
        && canonical_combining_class(letter) != 0
}

/// The folding of letters that have no decomposition, or that change only under
/// full case folding.
fn special_folding(letter: char) -> Option<&'static str> {
    Some(match letter {
        'ß' => "ss",
        'ς' => "σ",
        'æ' => "ae",
        'œ' => "oe",
        'ø' => "o",
        'đ' | 'ð' => "d",
        'ł' => "l",
        'þ' => "th",
        'ı' => "i",
        'ħ' => "h",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(word: &str) -> String {
        let mut text = String::new();
        fold_into(word, &mut text);
        text
    }

    #[test]
    fn width_case_and_accents_are_folded_and_distinguishing_marks_kept() {
        let words = "Ｋｅｅｐ=keep Café=cafe cafe\u{301}=cafe STRAßE=strasse İstanbul=istanbul ΟΔΟΣ=οδοσ \
            ﬁle=file Søren=soren ﾊﾞｽ=バス が=が 한국=한국";
        for (word, plain) in words.split(' ').map(|pair| pair.split_once('=').unwrap()) {
            assert_eq!(folded(word), plain);
        }
    }
}
