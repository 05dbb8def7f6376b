//! Tests of the query parser.

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
fn function_words_have_low_weight() {
    assert_eq!(
        ranked("What is the Retention?"),
        [
            (term("what"), FUNCTION_WEIGHT),
            (term("is"), FUNCTION_WEIGHT),
            (term("the"), FUNCTION_WEIGHT),
            (term("retention"), 1.0)
        ]
    );
    assert_eq!(
        ranked("retry_count"),
        [(term("retry"), PART_WEIGHT), (term("count"), PART_WEIGHT), (term("retrycount"), 1.0)]
    );
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
    for text in [
        "\"", "\"open", "-", "--", "- a", "*", "path:", "path:\"", "-\"", "a\"b", "“", "-*", "path:/",
        "\u{0}",
    ] {
        let _ = parsed(text);
    }
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
fn query_without_terms_is_empty() {
    for text in ["", "  ", "?!", "-excluded", "-path:a/", "\"…\""] {
        assert!(parsed(text).is_empty(), "{text}");
    }
    assert!(parsed("path:notes/").is_path_only());
}

#[test]
fn path_filters_are_rooted_or_relative() {
    let anywhere = PathFilter::of("Notes/", false);
    let absolute = PathFilter::of("/notes/", false);
    for (path, is_anywhere, is_at_root) in
        [("/notes/a", true, true), ("/work/notes/a", true, false), ("/footnotes/a", false, false)]
    {
        assert_eq!(anywhere.allows(path), is_anywhere, "{path}");
        assert_eq!(absolute.allows(path), is_at_root, "{path}");
    }
}

#[test]
fn chinese_question_words_have_low_weight() {
    let weights = ranked("如何部署");
    assert!(weights.contains(&(term("如何"), FUNCTION_WEIGHT)));
    assert!(weights.contains(&(term("何部"), EDGE_WEIGHT)));
    assert!(weights.contains(&(term("部署"), 1.0)));
}

#[test]
fn function_words_select_the_language_of_forms() {
    assert_eq!(parsed("what is running").languages, [Language::English]);
    assert_eq!(parsed("apa yang berjalan").languages, [Language::Indonesian]);
    assert_eq!(parsed("running berjalan").languages.len(), 2);
}

#[test]
fn clauses_are_deduplicated_and_limited() {
    let query = parsed(&"-ab* path:x/ \"c d\" ".repeat(40));
    let counts = [query.excluded.len(), query.paths.len(), query.phrases.len()];
    assert_eq!(counts, [1, 1, 1]);
    let many = |clause: &str| -> String {
        let numbers = (0..60).map(|number: u32| number.to_string());
        numbers.map(|number| clause.replace('#', &number)).collect()
    };
    assert_eq!(parsed(&many("-ab# ")).excluded.len(), MAX_CLAUSES);
    let is_prefix = |(atom, _): &(Atom, f64)| matches!(atom, Atom::Prefix(_));
    assert_eq!(ranked(&many("ab#* ")).iter().filter(|one| is_prefix(one)).count(), MAX_PREFIXES);
}

#[test]
fn one_letter_is_not_a_prefix() {
    for (text, is_prefix) in [("a*", false), ("é*", false), ("ж*", false), ("ab*", true), ("猫*", true)] {
        let has_prefix = ranked(text).iter().any(|(atom, _)| matches!(atom, Atom::Prefix(_)));
        assert_eq!(has_prefix, is_prefix, "{text}");
    }
}
