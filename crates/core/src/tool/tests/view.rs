use super::*;
use proptest::prelude::*;

fn viewed(content: &str, view_range: Option<(i64, i64)>, max_chars: u64) -> Result<String, ToolError> {
    view_file(&at("/memories/a"), content, view_range, 0, max_chars)
}

#[test]
fn sizes_round_half_up_to_the_next_unit() {
    for (bytes, text) in [
        (1_073_689_395, "1023.9M"),
        (1_073_689_396, "1.0G"),
        (2_199_023_255_552, "2048.0G"),
        (u64::MAX, "17179869184.0G"),
    ] {
        assert_eq!(format_size(bytes), text, "{bytes}");
    }
}

/// A view's lines, and the range that its notice proposes for the next call.
fn read_page(body: &str) -> (Vec<String>, Option<(i64, i64)>) {
    let (lines, notice) = match body.rsplit_once("\n\n[") {
        Some((lines, notice)) if notice.ends_with(".]") => (lines, notice),
        _ => (body, ""),
    };
    let next = notice.split_once("view_range [").map(|(_, range)| {
        let (start, end) = range.trim_end_matches("].]").split_once(", ").unwrap();
        (start.parse().unwrap(), end.parse().unwrap())
    });
    (lines.split('\n').map(str::to_owned).collect(), next)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_hint_can_be_followed_and_they_show_each_character_once(
        lines in proptest::collection::vec("[a-zé\r]{0,12}", 1..40),
        max_chars in 8..120_u64,
        range in proptest::option::of((1..40_i64, -1..60_i64)),
    ) {
        let content = lines.join("\n");
        let last_line = i64::try_from(lines.len()).unwrap();
        let (start, end) = range.unwrap_or((1, -1));
        let valid = start <= last_line && (end == -1 || end >= start);
        prop_assert_eq!(viewed(&content, range, max_chars).is_ok(), valid);
        if !valid {
            return Ok(());
        }
        let end = if end == -1 { last_line } else { end.min(last_line) };
        let mut seen = vec![String::new(); lines.len()];
        let (mut range, mut offset) = (range, 0);
        loop {
            let shown = view_file(&at("/memories/a"), &content, range, offset, max_chars).unwrap();
            let body = shown.split_once(":\n").unwrap().1;
            let (page, hinted) = read_page(body);
            prop_assert!(page.join("\n").chars().count() as u64 <= max_chars);
            for line in page {
                let (number, text) = line.split_once('\t').unwrap();
                seen[number.trim().parse::<usize>().unwrap() - 1].push_str(text);
            }
            prop_assert!(hinted.is_none_or(|range| viewed(&content, Some(range), max_chars).is_ok()));
            let hinted_offset = body.split_once("memory_read and offset ").map(|(_, rest)| {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().unwrap()
            });
            match (hinted_offset, hinted) {
                (Some(next), _) => offset = next,
                (None, Some(next)) => (range, offset) = (Some(next), 0),
                (None, None) => break,
            }
        }
        for (number, (seen, line)) in (1..).zip(seen.iter().zip(&lines)) {
            let is_wanted = (start..=end).contains(&number);
            prop_assert_eq!(seen, if is_wanted { line.as_str() } else { "" });
        }
    }

    #[test]
    fn listing_shows_no_more_than_its_bound(
        names in proptest::collection::vec(("[a-zé]{1,4}", any::<bool>(), 0..3000_u64), 0..40),
        extra in 0..5_u64,
        max_chars in 0..400_u64,
        directory in "/memories(/[a-zé]{1,5})?",
    ) {
        let path = at(&directory);
        let above = path.dir();
        let entries = names.iter().map(|(name, is_directory, size_bytes)| {
            let path = format!("{}{name}", above.as_str());
            DirectoryEntry { path, is_directory: *is_directory, size_bytes: *size_bytes }
        });
        let entries: Vec<_> = entries.collect();
        let total = entries.len() as u64 + extra;
        let text = view_directory(&path, 0, &entries, total, max_chars);
        let listing = text.split_once(":\n").unwrap().1;
        let lines = listing.split("\n\n").next().unwrap();
        let shown = lines.split('\n').count() as u64 - 1;
        prop_assert!(shown <= max_entries_shown(&path, max_chars));
        prop_assert!(shown == 0 || lines.chars().count() as u64 <= max_chars);
        // Requesting only as many entries as the bound gives the same listing.
        let enough = usize::try_from(max_entries_shown(&path, max_chars)).unwrap().min(entries.len());
        prop_assert_eq!(view_directory(&path, 0, &entries[..enough], total, max_chars), text);
    }
}
