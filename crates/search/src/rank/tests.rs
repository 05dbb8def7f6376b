use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::TermRow;

mod fusion;
mod quality;

fn memory(number: u128) -> MemoryId {
    MemoryId::from_uuid(Uuid::from_u128(number))
}

fn path(text: &str) -> MemoryPath {
    MemoryPath::parse(text).unwrap()
}

fn put(index: &mut Postings, number: u128, place: &str, content: &str) {
    let row = TermRow::of(content).into_bytes();
    index.set(memory(number), path(place), Some(row.into())).unwrap();
}

fn store(memories: &[(&str, &str)]) -> Postings {
    let mut index = Postings::default();
    for (number, (place, content)) in (0..).zip(memories) {
        put(&mut index, number, place, content);
    }
    index
}

fn search(index: &Postings, query: &str) -> Results {
    index.search(&Query::parse(query).unwrap(), None, 100, |_, _| true)
}

fn found(index: &Postings, query: &str) -> Vec<String> {
    let found = search(index, query).found.into_iter();
    found.map(|one| one.path.as_str()[1..].to_owned()).collect()
}

fn build(index: &mut Postings) {
    index.adopt(index.builder().unwrap().build().unwrap());
}

/// Asserts that what `ask` finds is equal before and after the postings are built.
fn assert_equal_when_built<T: PartialEq + std::fmt::Debug>(
    index: &mut Postings,
    ask: impl Fn(&Postings) -> T,
) -> T {
    let read = ask(index);
    build(index);
    assert_eq!(ask(index), read);
    read
}

#[test]
fn hits_are_in_the_order_of_scores_and_then_of_paths() {
    let deploys = [("/2", "we deploy it"), ("/1", "we deployed it"), ("/deploy.md", "nothing of it")];
    let forms = [("/3", "they went home"), ("/4", "mereka membaca buku")];
    let same = [("/b", "same text"), ("/a", "same text"), ("/c", "same text")];
    let phrases = [
        ("/1", "a blue green deployment"),
        ("/2", "a green blue deployment"),
        ("/3", "blue-green"),
        ("/4", "blue and green"),
        ("/6", "部署服务很快"),
        ("/7", "服务部署很快"),
    ];
    let notes = [
        ("/notes/1", "retry the upload"),
        ("/notes/2", "retry the download"),
        ("/work/3", "retrying uploads"),
    ];
    let places = [("/notes/a", "x"), ("/work/notes/a", "x"), ("/footnotes/a", "x")];
    let cats = [("/1", "我的猫很好"), ("/3", "狗")];
    let filler = "lorem ipsum dolor sit amet ".repeat(12);
    let (near, far) = (format!("{filler} budget meeting"), format!("budget {filler} meeting"));
    let near_and_far = [("/a", far.as_str()), ("/b", near.as_str())];
    let long = "lorem ipsum dolor sit amet ".repeat(40);
    let together = format!("{long} budget {filler} meeting");
    let apart = format!("budget {long} {filler} meeting");
    let passages = [("/a", apart.as_str()), ("/b", together.as_str())];
    for (memories, query, expected) in [
        // The path counts more than the content, and the exact word more than its forms.
        (&deploys[..], "deploy", "deploy.md 2 1"),
        (&forms, "going", "3"),
        (&forms, "bacaan", "4"),
        (&same, "text", "a b c"),
        (&phrases, "\"blue green\" -deployment", "3"),
        (&phrases, "\"部署服务\"", "6"),
        // The parts of a compound share one position.
        (&phrases, "\"green blue\" -deployment", "3"),
        (&notes, "retry -download path:notes/", "notes/1"),
        (&notes, "uplo* -path:/notes/", "work/3"),
        (&notes, "path:notes/", "notes/1 notes/2"),
        (&notes, "-retry", ""),
        (&places, "path:Notes/", "notes/a work/notes/a"),
        (&places, "path:/notes/", "notes/a"),
        (&cats, "猫", "1"),
        (&cats, "很好 -猫", ""),
        (&near_and_far, "budget meeting", "b a"),
        // Too far for nearness, but in one passage.
        (&passages, "budget meeting", "b a"),
    ] {
        assert_eq!(found(&store(memories), query).join(" "), expected, "{query}");
    }
    let below =
        store(&notes).search(&Query::parse("retry").unwrap(), Some(&path("/work").as_dir()), 10, |_, _| true);
    assert_eq!(below.count, 1);
}

#[test]
fn postings_of_a_replaced_index_are_dropped() {
    let memories = [("/a", "alpha"), ("/b", "beta"), ("/c", "gamma")];
    let mut index = store(&memories);
    let building = index.builder().unwrap();
    index = store(&[memories[2], memories[1]]);
    index.adopt(building.build().unwrap());
    assert!(index.builder().is_some());
    assert_eq!(found(&index, "gamma"), ["c"]);
    assert_eq!(found(&index, "alpha"), Vec::<String>::new());
}

#[test]
fn too_broad_query_differs_from_one_without_hits() {
    let put_one = |index: &mut Postings, number: u128| {
        put(index, number, &format!("/{number}"), &format!("common word{number} common"));
    };
    let mut index = Postings::default();
    for number in 0..50 {
        put_one(&mut index, number);
    }
    let reads_of = |index: &Postings, query: &str| {
        let query = Query::parse(query).unwrap();
        let is_enough = |reads: &u64| {
            let asked = Asked { query: &query, directory: None, fusion: None };
            !index.search_within(&Budget::of(*reads), asked, 10, |_, _| true).is_too_broad
        };
        (0_u64..100_000).find(is_enough).unwrap()
    };
    for query in ["common", "wo* -zebra", "\"common word7\" word8", "path:/ -\"wo common\""] {
        let read = reads_of(&index, query);
        let mut made = Postings::default();
        for number in (0..50).rev() {
            put(&mut made, number, "/elsewhere", "zebra common word7");
            put_one(&mut made, number);
        }
        build(&mut made);
        put(&mut made, 99, "/99", "zebra words");
        made.remove(memory(99));
        assert_eq!(reads_of(&made, query), read, "{query}");
    }
    assert!(!search(&index, "zebra").is_too_broad);
}

#[test]
fn characters_pairs_and_words_of_two_letters_are_found_before_and_after_the_build() {
    for (memories, query, count) in [
        // Only pairs in contents make a character too frequent to look up; pairs in paths do not.
        (&[("/丁七1", "丁三，丁七"), ("/丁七2", "one"), ("/丁七3", "one"), ("/丁七4", "one")][..], "丁万", 4),
        // Joined signs match like the equal pair.
        (&[("/a", "a b c d e f g h i j k l m ㊀-㊁ 丁 七"), ("/b", "㊀-㊁ 一二三")], "二", 2),
        (&[("/a", "a b c d e f g h i j k l m ㊀-㊁ 丁 七"), ("/b", "㊀-㊁ 一二三")], "\"一二三\"", 1),
        // One text has its pairs among its terms, like its words.
        (&[("/a", "და კარგი"), ("/b", "და 𠀀丁丁"), ("/c", "丁丁 და")], "და", 3),
        (&[("/a", "და კარგი"), ("/b", "და 𠀀丁丁"), ("/c", "丁丁 და")], "丁丁", 2),
    ] {
        let mut index = store(memories);
        let hits = assert_equal_when_built(&mut index, |index| search(index, query).found);
        assert_eq!(hits.len(), count, "{query}");
    }
}

/// A row whose header says that it has no pairs, and a row with runs of another
/// script.
#[test]
fn damaged_row_does_not_affect_other_memories() {
    let mut changed = TermRow::of("一丁𠀀").into_bytes();
    changed[1] = 0;
    let georgian = vec![3, 1, 2, 0, 1, 2, 1, 0, 0xd0, 0x10, 0xd1, 0x10];
    let mut index = store(&[("/a", "一丁"), ("/b", "აბ")]);
    let _ = index.set(memory(7), path("/c"), Some(changed.into()));
    let _ = index.set(memory(8), path("/d"), Some(georgian.into()));
    assert!(index.set(memory(9), path("/beta.md"), Some([0xff].into())).is_err());
    assert_eq!(found(&index, "beta"), ["beta.md"]);
    let ask = |index: &Postings| ["一丁", "აბ", "丁", "ბ", "beta"].map(|query| found(index, query));
    assert_equal_when_built(&mut index, ask);
    for damaged in [7, 8, 9] {
        index.remove(memory(damaged));
    }
    assert_eq!(ask(&index).map(|found| found.join(" ")), ["a", "b", "a", "", ""]);
}

#[test]
fn pair_positions_far_after_the_end_of_the_text_are_ignored() {
    let row = [&[3, 1, 1, 0, 1, 2, 5, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0xcd, 0x91, 0x66, 0x8a]];
    let mut index = Postings::default();
    let _ = index.set(memory(1), path("/a"), Some(row.concat().into()));
    assert_eq!(search(&index, "重試 a").found.len(), 1);
}

#[test]
fn postings_over_the_memory_limit_are_not_built() {
    let of_room = |room: usize| {
        let mut index = Postings::within(room);
        put(&mut index, 1, "/a", "one two three");
        put(&mut index, 2, "/b", "four five six");
        index
    };
    // Six words and two paths, with eight postings.
    assert!(of_room(1_000).builder().unwrap().build().is_none());
    assert!(of_room(1_200).builder().unwrap().build().is_some());
    // A query that reads the rows has the same memory limit.
    assert!(search(&of_room(300), "one two four").is_too_broad);
    let found = search(&of_room(300), "one two");
    assert!(!found.is_too_broad && found.count == 1);
}

#[test]
fn prefix_matches_the_first_terms_of_live_memories() {
    let letters = || "abcdefghijklmnopqrst".chars();
    let words: Vec<String> =
        letters().flat_map(|first| letters().map(move |second| format!("ab{first}{second}"))).collect();
    let mut index = store(&[("/early", &words[..200].join(" ")), ("/late", &words[390..].join(" "))]);
    build(&mut index);
    assert_eq!(found(&index, "ab*").len(), 2);
    put(&mut index, 7, "/more", &words[200..300].join(" "));
    assert_eq!(found(&index, "ab*"), ["early", "more"]);
    index.remove(memory(7));
    assert_eq!(found(&index, "ab*").len(), 2);
    assert_eq!(found(&index, "a*"), Vec::<String>::new());
}

#[derive(Debug, Clone)]
enum Change {
    Set(u128, String, String),
    Remove(u128),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let words = "deploy deployed server retry_count the went 部署服务 서버를 キャッシュ membaca";
    let words = prop::sample::select(words.split(' ').collect::<Vec<_>>());
    let text = prop::collection::vec(words, 0..12).prop_map(|words| words.join(" "));
    let change = prop_oneof![
        4 => (0_u128..12, "[a-c]/(deploy|notes|server)", text)
            .prop_map(|(number, place, text)| Change::Set(number, format!("/{place}{number}"), text)),
        1 => (0_u128..12).prop_map(Change::Remove),
    ];
    prop::collection::vec(change, 0..200)
}

/// Words in scripts with one to four bytes per character; some are longer than the
/// leading bytes.
fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab][a-e]{1,4}(|s|ed|ing|ation)",
        1 => "(me|di|ber)?[bt]aca(|kan|nya)",
        1 => "internationali[sz](e|ed|ing|ations?)",
        1 => "went|going|thought|think|[a-e]",
        2 => "[бвг]{1,4}",
        1 => "[אבג]{1,4}",
        3 => "[一丁七万丈三]{1,5}",
        1 => "[가각간]{1,3}",
        1 => "[აბგ]{1,3}",
        1 => "[一丁]\u{f71}{1,2}[一丁]{0,2}",
    ]
}

/// Texts with many blocks and runs; some have characters that runs cannot hold.
fn long_text() -> impl Strategy<Value = Vec<String>> {
    let rare = prop_oneof![9 => any_word(), 1 => "[𠀀𠀁丁]{1,3}"];
    prop_oneof![
        3 => prop::collection::vec(any_word(), 1..150),
        1 => prop::collection::vec(rare, 1..150),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Memories with many blocks, and all kinds of queries.
    #[test]
    fn row_reads_and_postings_give_equal_results(
        texts in prop::collection::vec(long_text(), 1..6),
        asked in prop::collection::vec((any_word(), any::<prop::sample::Index>(), 0_u8..8), 1..6),
    ) {
        let words: Vec<&String> = texts.iter().flatten().collect();
        let mut query = String::new();
        for (word, place, kind) in &asked {
            let known = words[place.index(words.len())];
            let half: String = known.chars().take(known.chars().count().div_ceil(2)).collect();
            let part = match kind {
                0 => word.clone(),
                1..=3 => known.clone(),
                4 => format!("{half}*"),
                5 => format!("\"{known}\""),
                6 => format!("-{word}"),
                _ => format!("\"{known} {word}\""),
            };
            query.push_str(&part);
            query.push(' ');
        }
        let mut index = Postings::default();
        for (number, text) in (0..).zip(&texts) {
            put(&mut index, number, &format!("/丁七{number}"), &text.join(" "));
        }
        let hits = |index: &Postings| search(index, &query).found;
        let read = hits(&index);
        build(&mut index);
        prop_assert_eq!(read, hits(&index), "{}", query);

        // Queries that are asked together find the same as each query by itself.
        let parts = query.split_whitespace().chain([query.as_str()]);
        let parts: Vec<_> = parts.map(|part| Query::parse(part).unwrap()).collect();
        let alone = parts.iter().map(|part| index.search(part, None, 100, |_, _| true).found);
        let together = index.copied_rows().search_each(&parts, 100).into_iter().map(|results| results.found);
        prop_assert_eq!(together.collect::<Vec<_>>(), alone.collect::<Vec<_>>(), "{}", query);

        // Removes the first memory and adds it again.
        let mut others = Postings::default();
        for (number, text) in (0..).zip(&texts).skip(1) {
            put(&mut others, number, &format!("/丁七{number}"), &text.join(" "));
        }
        index.remove(memory(0));
        prop_assert_eq!(hits(&index), hits(&others), "{}", query);
        for index in [&mut index, &mut others] {
            put(index, 0, "/丁七0", &texts[0].join(" "));
        }
        prop_assert_eq!(hits(&index), hits(&others), "{}", query);
    }

    /// A store's hits and scores do not depend on its history: they equal those of a
    /// rebuilt index, whatever the order of insertion.
    #[test]
    fn results_do_not_depend_on_index_history(changes in changes(), begin in 0_usize..150, query in prop::sample::select(vec![
        "deploy", "the server went down", "部署", "\"retry count\" -membaca", "서버", "dep* キャッシュ", "baca path:a/",
    ])) {
        let mut index = Postings::default();
        let mut state = std::collections::BTreeMap::new();
        let mut building = None;
        for (step, change) in changes.into_iter().enumerate() {
            // Postings are built from a snapshot of the store while it changes.
            if step == begin {
                building = index.builder();
            }
            if step == begin + 9 && let Some(builder) = building.take() {
                index.adopt(builder.build().unwrap());
            }
            match change {
                Change::Set(number, place, text) => {
                    put(&mut index, number, &place, &text);
                    state.insert(number, (place, text));
                }
                Change::Remove(number) => {
                    index.remove(memory(number));
                    state.remove(&number);
                }
            }
        }
        let mut rebuilt = Postings::default();
        for (number, (place, text)) in state.iter().rev() {
            put(&mut rebuilt, *number, place, text);
        }
        let hits = search(&index, query).found;
        prop_assert_eq!(&hits, &search(&rebuilt, query).found);
        build(&mut rebuilt);
        prop_assert_eq!(&hits, &search(&rebuilt, query).found);
        prop_assert_eq!(index.len(), state.len());
    }
}
