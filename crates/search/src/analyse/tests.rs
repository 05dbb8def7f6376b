use proptest::prelude::*;

use super::*;

fn terms(text: &str) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    analyse(text, |token| {
        assert!(!token.term.is_empty() && token.term.len() <= MAX_TERM_BYTES);
        assert!(!text[token.range].is_empty());
        found.push((token.term.to_owned(), token.position));
    });
    found
}

fn words(text: &str) -> Vec<String> {
    terms(text).into_iter().map(|(term, _)| term).collect()
}

#[test]
fn words_are_folded_with_their_places_and_compound_parts_share_one_position() {
    let expected = [("creme", 0), ("42", 1), ("retry", 2), ("count", 2), ("retrycount", 2), ("now", 3)];
    assert_eq!(terms("Crème, 42 retry_count now!"), expected.map(|(term, at)| (term.to_owned(), at)));
    assert_eq!(analyse("one two  three.", |_| {}), 3);
    let text = "Über die retry_count: 部署 ﾊﾞｽ.";
    let mut pieces = Vec::new();
    analyse(text, |token| pieces.push(text[token.range].to_owned()));
    assert_eq!(pieces, ["Über", "die", "retry", "count", "retry_count", "部署", "ﾊﾞｽ"]);
}

#[test]
fn identifiers_match_whole_and_by_parts() {
    for (text, expected) in [
        ("retry_count", &["retry", "count", "retrycount"][..]),
        ("HTTPServer", &["http", "server", "httpserver"]),
        ("a.b.c", &["a", "b", "c", "abc"]),
        ("getHTTPUrl2", &["get", "http", "url", "2", "gethttpurl2"]),
        ("ERR-1042", &["err", "1042", "err1042"]),
        ("E0502", &["e0502"]),
        ("s3://bucket", &["s3", "bucket"]),
        ("2026-01-31", &["2026", "01", "31", "2026-01-31"]),
        ("3.14", &["3", "14", "3.14"]),
        ("src/main.rs", &["src", "main", "rs", "mainrs"]),
        (" \u{200b}…!? ", &[]),
        ("Anna's we’ll don't O'Brien", &["anna", "we", "dont", "o", "brien", "obrien"]),
    ] {
        assert_eq!(words(text), expected, "{text}");
    }
}

#[test]
fn scripts_without_spaces_become_pairs() {
    for (text, expected) in [
        ("部署服务", &["部署", "署服", "服务"][..]),
        ("猫", &["猫"]),
        ("サーバーを再起動", &["サー", "ーバ", "バー", "を", "再起", "起動"]),
        ("서버를 배포", &["서버", "버를", "배포"]),
        ("API를", &["api", "를"]),
        ("ﾃｽﾄ", &["テス", "スト"]),
        ("か\u{3099}く", &["がく"]),
        ("\u{1112}\u{1161}\u{11ab}국", &["한국"]),
        ("株式会社Keepsake", &["株式", "式会", "会社", "keepsake"]),
    ] {
        assert_eq!(words(text), expected, "{text}");
    }
}

#[test]
fn hostile_text_is_bounded() {
    for unit in
        "a a_ aB a- 猫 a\u{301} a.\u{301} ' 1a \u{1112}\u{1161} か\u{3099} 🇩 \u{301} \u{fdfa}".split(' ')
    {
        let text = unit.repeat(50_000);
        let mut count = 0;
        analyse(&text, |token| {
            assert!(token.term.len() <= MAX_TERM_BYTES);
            count += 1;
        });
        assert!(count <= 2 * text.len(), "{unit}");
    }
}

#[test]
fn fast_path_letters_match_the_full_classification() {
    let mut words = 0;
    for letter in '\0'..=char::MAX {
        assert!(!is_apart(letter) || !is_mark(letter), "{letter:?}");
        let Some(script) = plain_unspaced(letter) else {
            continue;
        };
        let expected = match letter.script() {
            Script::Han => UnspacedScript::Han,
            Script::Hiragana => UnspacedScript::Hiragana,
            Script::Katakana => UnspacedScript::Katakana,
            Script::Hangul => UnspacedScript::Hangul,
            other => panic!("{letter:?} is {other:?}"),
        };
        let mut folded = String::new();
        fold_into(letter.encode_utf8(&mut [0; 4]), &mut folded);
        assert_eq!((script, folded.as_str()), (expected, &*letter.to_string()));
        assert!(letter.is_alphanumeric());
        if plain_word(letter).is_some() {
            let text = format!("a{letter}{letter}b");
            let found: Vec<_> = text.unicode_words().collect();
            assert_eq!(found.concat(), text);
            assert_eq!(found.len(), 4, "{text}");
            words += 1;
        }
    }
    assert_eq!(words, 20_976 + 6_582 + 86);
}

proptest! {
    /// The fast path for such letters finds the same terms as the search for word
    /// boundaries.
    #[test]
    fn fast_path_finds_the_same_terms(
        text in proptest::collection::vec(proptest::sample::select(vec![
            '中', '文', '㐀', '龥', 'あ', 'が', 'ん', 'ア', 'ー', '한', '국', 'ก', 'า', 'a', 'B', '7', '_', '\'', '.', '-',
            ' ', '\n', '，', '。', '\u{3000}', 'Ａ', '～', '\u{302a}', '\u{3099}', '\u{309b}', '\u{301}', '\u{200d}', '\u{200b}',
            '\u{fe00}', '\u{e0100}', '𠮷', '㊀', '🇯', '🇵', '👩', 'א', '"', '々', '〆', '\u{1100}', '\u{1161}', '\u{ad}',
        ]), 0..24)
    ) {
        let text = String::from_iter(text);
        let all = |is_asked: bool| {
            let mut found = Vec::new();
            let mut analysis = Analysis::of(|token: Token<'_>| {
                found.push((token.term.to_owned(), token.position, token.range, token.kind));
            });
            if is_asked {
                analysis.take_words(&text, 0..text.len());
            } else {
                analysis.take(&text);
            }
            let positions = analysis.end();
            (found, positions)
        };
        prop_assert_eq!(all(false), all(true));
    }
}
