use super::*;

fn parsed(text: &str) -> Query {
    Query::parse(text).unwrap()
}

fn ranked(text: &str) -> Vec<(Atom, f64)> {
    parsed(text).ranked.into_iter().map(|one| (one.atom, one.weight)).collect()
}

fn term(text: &str) -> Atom {
    Atom::Term(text.to_owned())
}

#[test]
fn function_words_and_parts_have_low_weight_and_select_the_language_of_forms() {
    let of = |text: &str, weight| (term(text), weight);
    assert_eq!(ranked("the Retention?"), [of("the", FUNCTION_WEIGHT), of("retention", 1.0)]);
    let parts = [of("retry", PART_WEIGHT), of("count", PART_WEIGHT), of("retrycount", 1.0)];
    assert_eq!(ranked("retry_count"), parts);
    let weights = ranked("如何部署");
    for weight in [of("如何", FUNCTION_WEIGHT), of("何部", EDGE_WEIGHT), of("部署", 1.0)] {
        assert!(weights.contains(&weight), "{weight:?}");
    }
    assert_eq!(parsed("what is running").languages, [Language::English]);
    assert_eq!(parsed("apa yang berjalan").languages, [Language::Indonesian]);
    assert_eq!(parsed("running berjalan").languages.len(), 2);
}

#[test]
fn clauses_are_distinguished() {
    let query = parsed("\"blue green\" -old -\"very old\" path:notes/ -path:/tmp dep* x");
    assert_eq!(query.phrases, [Sequence(vec![(term("blue"), 0), (term("green"), 1)])]);
    assert_eq!(
        query.excluded,
        [Sequence(vec![(term("old"), 0)]), Sequence(vec![(term("very"), 0), (term("old"), 1)])]
    );
    assert_eq!(query.paths, [PathFilter::of("notes/", false), PathFilter::of("/tmp", true)]);
    let atoms: Vec<_> = query.ranked.into_iter().map(|one| one.atom).collect();
    assert_eq!(atoms, [term("blue"), term("green"), Atom::Prefix("dep".into()), term("x")]);
}

#[test]
fn only_an_overlong_query_is_an_error() {
    for text in ["", "  ", "?!", "-excluded", "-path:a/", "\"…\""] {
        assert!(parsed(text).is_empty(), "{text}");
    }
    for text in ["\"", "-", "--", "*", "path:", "path:\"", "-\"", "a\"b", "“", "-*", "path:/", "\u{0}"] {
        let _ = parsed(text);
    }
    assert!(parsed("path:notes/").is_path_only());
    assert_eq!(ranked("\"open quote")[0].0, term("open"));
    assert_eq!(ranked("- item")[0].0, term("item"));
    assert_eq!(ranked("--force")[0].0, term("force"));
    assert!(Query::parse(&"é".repeat(MAX_QUERY_CHARS)).is_ok());
    assert_eq!(
        Query::parse(&"é".repeat(MAX_QUERY_CHARS + 1)),
        Err(QueryTooLong { chars: MAX_QUERY_CHARS + 1 })
    );
}

#[test]
fn clauses_are_deduplicated_and_limited() {
    let query = parsed(&"-ab* path:x/ \"c d\" ".repeat(40));
    assert_eq!([query.excluded.len(), query.paths.len(), query.phrases.len()], [1, 1, 1]);
    let many = |clause: &str| -> String {
        let numbers = (0..60).map(|number: u32| number.to_string());
        numbers.map(|number| clause.replace('#', &number)).collect()
    };
    assert_eq!(parsed(&many("-ab# ")).excluded.len(), MAX_CLAUSES);
    let prefixes = |text: &str| {
        let atoms = ranked(text).into_iter().map(|(atom, _)| atom);
        atoms.filter(|atom| matches!(atom, Atom::Prefix(_))).count()
    };
    assert_eq!(prefixes(&many("ab#* ")), MAX_PREFIXES);
    // One letter is no prefix, but one character of Chinese is.
    for (text, count) in [("a*", 0), ("ж*", 0), ("ab*", 1), ("猫*", 1)] {
        assert_eq!(prefixes(text), count, "{text}");
    }
}

#[test]
fn meaning_text_has_no_filters_and_is_absent_for_quoted_words() {
    let of = |text: &str| parsed(text).meaning_text();
    let text = of("  How do -draft path:notes/ we -\"old plan\" depl*  - really?");
    assert_eq!(text, MeaningText::Text("How do we depl - really?".to_owned()));
    assert_eq!(of("retry \"blue green\""), MeaningText::Quoted);
    for text in ["", "?!", "path:notes/", "-draft", "\"\""] {
        assert_eq!(of(text), MeaningText::NoWords, "{text}");
    }
}
