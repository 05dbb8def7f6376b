use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Checks the whole row: another row of this format version passes.
fn check(row: &[u8]) -> Result<(), DamagedRow> {
    let mut terms = Terms::of(row)?;
    if let Some(runs) = terms.runs() {
        runs.check()?;
    }
    while terms.next()?.is_some() {
        std::str::from_utf8(terms.term()).map_err(|_| DamagedRow)?;
    }
    Ok(())
}

fn read(row: &[u8]) -> Vec<(String, Vec<u32>)> {
    let mut terms = Terms::of(row).unwrap();
    let mut found = BTreeMap::new();
    let mut take = |text: &[u8], at: TermAt| {
        let mut places = Vec::new();
        positions(row, at.positions_at, at.frequency, |position| {
            places.push(position);
        });
        assert_eq!(places.len(), at.frequency as usize);
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert_eq!(found.insert(text, places), None, "a term is there twice");
    };
    if let Some(runs) = terms.runs() {
        runs.each_term(|_| true, |_| true, |text, _, at| take(text, at)).unwrap();
    }
    while let Some(at) = terms.next().unwrap() {
        take(terms.term(), at);
    }
    found.into_iter().collect()
}

/// Each text of the loop has something that runs cannot hold: a character of four bytes, or too
/// many characters.
#[test]
fn pairs_are_runs_of_characters_or_terms() {
    let row = TermRow::of("重試預算，試預。ab 重試 リトライ");
    // Two bytes for each character and each of the separators of four runs, and the
    // distances.
    assert_eq!(row.as_bytes().len(), 7 + 4 + (12 + 3) * 2 + "_ab_x".len());
    let long = "重試".repeat(40_000);
    for text in ["𠀀重試 重試", &long] {
        let row = TermRow::of(text);
        assert!(Terms::of(row.as_bytes()).unwrap().runs().is_none());
        assert!(Terms::of(row.as_bytes()).unwrap().has_pairs());
        assert_eq!(check(row.as_bytes()), Ok(()));
    }
    let plain = read(TermRow::of("𠀀重試 重試").as_bytes());
    assert!(plain.contains(&("重試".to_owned(), vec![1, 3])));
}

/// A row with many blocks; the requested terms are in the first block, in the last
/// block, and at the end of a block.
#[test]
fn skipped_blocks_contain_no_needed_term() {
    let text: Vec<_> = (0..100).map(|number| format!("w{number:03}")).collect();
    let row = TermRow::of(&text.join(" ")).into_bytes();
    assert_eq!(read(&row).len(), 100);
    for ranked in [0, 15, 16, 17, 95, 96, 99] {
        let ranked = format!("w{ranked:03}");
        let leads = leading(ranked.as_bytes());
        let mut terms = Terms::of(&row).unwrap();
        let (mut seen, mut found) = (0, false);
        loop {
            terms.skip_blocks(|first, last| first <= leads && leads <= last).unwrap();
            if terms.next().unwrap().is_none() {
                break;
            }
            seen += 1;
            found |= terms.term() == ranked.as_bytes();
        }
        assert!(found, "{ranked}");
        assert!(seen <= 2 * BLOCK, "{ranked}: {seen}");
    }
    let mut terms = Terms::of(&row).unwrap();
    terms.skip_blocks(|_, _| false).unwrap();
    assert!(terms.next().unwrap().is_none());
}

#[test]
fn cut_and_lengthened_rows_are_refused() {
    for text in ["one two three two one", "one 重試預算 two 重試", "重試預算"] {
        let row = TermRow::of(text).into_bytes();
        for end in 0..row.len() {
            assert_eq!(check(&row[..end]), Err(DamagedRow), "{text} {end}");
        }
        assert_eq!(check(&[&row[..], &[0]].concat()), Err(DamagedRow));
    }
}

#[test]
fn term_with_a_nul_is_ignored() {
    let mut row = TermRow::of("axb").into_bytes();
    let place = row.iter().position(|byte| *byte == b'x').unwrap();
    assert_eq!(check(&row), Ok(()));
    row[place] = 0;
    assert_eq!(check(&row), Err(DamagedRow));
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[\u{300}\u{345}\u{5b0}\u{5b4}\u{64b}\u{64e}\u{652}\u{670}\u{e31}\u{3099}\u{ff9e}]{1,4}",
        "[ \n.'’_-]{1,2}",
        "(x|é|Ж|ا|猫|가|\u{fdfa}){55,70}",
        Just("n't".to_owned()),
        "[a-zA-Z0-9]{1,5}",
        "[重試預算リトライ가나다ก๐、。 ]{1,6}",
        "[㊀㊁㆒一二𠀀ﾞｶ-]{1,3}",
    ]
}

proptest! {
    /// Also of lone signs, long words, endings and joiners.
    #[test]
    fn row_round_trips_the_analysis(text in "\\PC{0,100}", pieces in proptest::collection::vec(piece(), 0..12)) {
        let text = pieces.concat() + &text;
        let mut expected = BTreeMap::<String, Vec<u32>>::new();
        let length = analyse(&text, |token| {
            let places = expected.entry(token.term.to_owned()).or_default();
            if places.last() != Some(&token.position) {
                places.push(token.position);
            }
        });
        let row = TermRow::of(&text);
        prop_assert_eq!(row.length(), length);
        prop_assert_eq!(check(row.as_bytes()), Ok(()));
        prop_assert_eq!(read(row.as_bytes()), expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = check(&bytes);
        for pairs in 0..3 {
            let row = [&[FORMAT_VERSION, pairs, 9, 40][..], &bytes].concat();
            let _ = check(&row);
            let Ok(mut terms) = Terms::of(&row) else {
                continue;
            };
            if let Some(runs) = terms.runs() {
                let _ = runs.each_term(|character| character % 2 == 0, |_| true, |_, _, at| {
                        positions(&row, at.positions_at, at.frequency, |_| {});
                });
            }
            while terms.skip_blocks(|first, _| first % 2 == 0).is_ok() {
                if !matches!(terms.next(), Ok(Some(_))) {
                    break;
                }
            }
        }
    }
}
