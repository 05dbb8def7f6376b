use super::*;
use proptest::prelude::*;

fn viewed(content: &str, view_range: Option<(i64, i64)>, max_chars: u64) -> Result<String, ToolError> {
    view_file(&at("/memories/a"), content, view_range, max_chars)
}

/// The text of a view below its header.
fn body(content: &str, view_range: Option<(i64, i64)>, max_chars: u64) -> String {
    let text = viewed(content, view_range, max_chars).unwrap();
    text.strip_prefix("Here's the content of /memories/a with line numbers:\n").unwrap().to_owned()
}

#[test]
fn file_shows_its_lines_with_numbers() {
    assert_eq!(
        viewed("Hello World\nThis is line two", None, 16_000).unwrap(),
        "Here's the content of /memories/a with line numbers:\n     1\tHello World\n     2\tThis is line two"
    );
    assert_eq!(body("", None, 16_000), "     1\t");
    assert_eq!(body("a\n", None, 16_000), "     1\ta\n     2\t");
    assert_eq!(body("a\r\nb\u{2028}c\u{b}", None, 16_000), "     1\ta\r\n     2\tb\u{2028}c\u{b}");
}

#[test]
fn line_numbers_carry_at_every_width() {
    let content = vec!["x"; 100_001].join("\n");
    let text = body(&content, None, u64::MAX);
    for (position, line) in text.split('\n').enumerate() {
        assert_eq!(line, format!("{:>6}\tx", position + 1));
    }
}

#[test]
fn range_is_inclusive_and_cut_to_the_file() {
    let four = "a\nb\nc\nd";
    assert_eq!(body(four, Some((2, 3)), 16_000), "     2\tb\n     3\tc");
    assert_eq!(body(four, Some((3, -1)), 16_000), "     3\tc\n     4\td");
    assert_eq!(body(four, Some((4, 4)), 16_000), "     4\td");
    assert_eq!(body(four, Some((4, 99)), 16_000), "     4\td");
    assert_eq!(body(four, Some((1, i64::MAX)), 16_000).lines().count(), 4);
    assert_eq!(body("a\n", Some((2, 2)), 16_000), "     2\t");
}

#[test]
fn range_outside_the_file_is_refused() {
    for (start, end) in [(0, 1), (-1, -1), (5, 5), (5, -1), (3, 2), (1, 0), (2, -2), (i64::MIN, i64::MAX)] {
        assert_eq!(
            viewed("a\nb\nc\nd", Some((start, end)), 16_000),
            Err(ToolError::InvalidViewRange { start, end, lines: 4 })
        );
    }
}

#[test]
fn file_over_999_999_lines_is_refused() {
    let most = "\n".repeat(999_998);
    assert!(body(&most, Some((999_999, -1)), 16_000).starts_with("999999\t"));
    let error = viewed(&format!("{most}\n"), Some((0, 0)), 16_000);
    assert_eq!(error, Err(ToolError::TooManyLines { path: "/memories/a".into() }));
}

#[test]
fn long_view_stops_at_a_whole_line() {
    // Each numbered line is 8 characters, with a newline between: 8, 17, 26, 35.
    let four = "a\nb\nc\nd";
    assert_eq!(body(four, None, 35), "     1\ta\n     2\tb\n     3\tc\n     4\td");
    let notice =
        "     1\ta\n     2\tb\n     3\tc\n\n[Lines 1-3 of 4 shown. Continue with view_range [4, -1].]";
    assert_eq!(body(four, None, 34), notice);
    assert_eq!(body(four, None, 26), notice);
    assert_eq!(
        body(four, Some((2, 4)), 16),
        "     2\tb\n\n[Lines 2-2 of 4 shown. Continue with view_range [3, 4].]"
    );
    assert_eq!(
        body(four, Some((1, 99)), 17),
        "     1\ta\n     2\tb\n\n[Lines 1-2 of 4 shown. Continue with view_range [3, 99].]"
    );
}

#[test]
fn limit_counts_characters_and_not_bytes() {
    assert_eq!(body("éé\n🦀", None, 18), "     1\téé\n     2\t🦀");
    assert!(body("éé\n🦀", None, 17).ends_with("[Lines 1-1 of 2 shown. Continue with view_range [2, -1].]"));
}

#[test]
fn first_line_that_does_not_fit_is_cut() {
    assert_eq!(
        body("éa\nabcdefghij\nz", Some((2, -1)), 12),
        "     2\tabcde\n\n[Line 2 cut: 5 of 10 characters shown. \
         Read on with memory_read and offset 8, or view_range [3, -1].]"
    );
    assert_eq!(
        body("ééééé", None, 9),
        "     1\téé\n\n[Line 1 cut: 2 of 5 characters shown. \
         Read on with memory_read and offset 2, or view_range [2, -1].]"
    );
    assert!(body("abc", None, 3).starts_with("     1\t\n\n[Line 1 cut: 0 of 3 characters shown."));
    assert_eq!(body("abc", None, 10), "     1\tabc");
}

fn entry(path: &str, is_directory: bool, size_bytes: u64) -> DirectoryEntry<'_> {
    DirectoryEntry { path: path.into(), is_directory, size_bytes }
}

#[test]
fn directory_shows_its_entries() {
    let entries = [
        entry("customer_service_guidelines.xml", false, 1536),
        entry("projects", true, 3072),
        entry("projects/a.md", false, 2048),
    ];
    let listing = "Here're the files and directories up to 2 levels deep in /memories, excluding hidden \
                   items and node_modules:\n\
                   4.5K\t/memories\n\
                   1.5K\t/memories/customer_service_guidelines.xml\n\
                   3.0K\t/memories/projects/\n\
                   2.0K\t/memories/projects/a.md";
    assert_eq!(view_directory(&at("/memories/"), 4608, &entries, 3, 16_000), listing);
    assert_eq!(
        view_directory(&at("/memories/projects"), 2048, &[entry("a.md", false, 2048)], 1, 16_000),
        "Here're the files and directories up to 2 levels deep in /memories/projects, excluding hidden \
         items and node_modules:\n2.0K\t/memories/projects\n2.0K\t/memories/projects/a.md"
    );
}

#[test]
fn long_listing_stops_at_a_whole_entry() {
    let entries = [entry("a", false, 1), entry("b", true, 1), entry("b/é", false, 1)];
    let shown = |total: u64, max_chars: u64| {
        let text = view_directory(&at("/memories"), 3, &entries, total, max_chars);
        text.split_once(":\n").unwrap().1.to_owned()
    };
    // The first line has 12 characters, then 15, 16 and 17 with their newlines.
    assert_eq!(shown(3, 60), "3B\t/memories\n1B\t/memories/a\n1B\t/memories/b/\n1B\t/memories/b/é");
    assert_eq!(
        shown(3, 59),
        "3B\t/memories\n1B\t/memories/a\n1B\t/memories/b/\n\n\
         [1 more entries not shown. View a subdirectory to see them.]"
    );
    assert_eq!(shown(3, 0), "3B\t/memories\n\n[3 more entries not shown. View a subdirectory to see them.]");
    assert!(shown(10, 60).ends_with("é\n\n[7 more entries not shown. View a subdirectory to see them.]"));
}

#[test]
fn sizes_round_half_up_to_the_next_unit() {
    for (bytes, text) in [
        (0, "0B"),
        (1, "1B"),
        (1023, "1023B"),
        (1024, "1.0K"),
        (1075, "1.0K"),
        (1076, "1.1K"),
        (1536, "1.5K"),
        (1587, "1.5K"),
        (1588, "1.6K"),
        (2048, "2.0K"),
        (10_240, "10.0K"),
        (102_400, "100.0K"),
        (1_048_524, "1023.9K"),
        (1_048_525, "1.0M"),
        (1_048_575, "1.0M"),
        (1_048_576, "1.0M"),
        (1_258_291, "1.2M"),
        (1_073_689_395, "1023.9M"),
        (1_073_689_396, "1.0G"),
        (1_073_741_824, "1.0G"),
        (2_199_023_255_552, "2048.0G"),
        (u64::MAX, "17179869184.0G"),
    ] {
        assert_eq!(format_size(bytes), text, "{bytes}");
    }
}

/// A view's lines, and the range that its notice proposes for the next call.
type Page = (Vec<String>, Option<(i64, i64)>);

/// Reads a page as a model would.
fn read_page(body: &str) -> Page {
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
    fn following_the_notices_shows_every_line_once(
        lines in proptest::collection::vec("[a-zé\r]{0,12}", 1..40),
        max_chars in 19..120_u64,
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
        let mut seen = Vec::new();
        let mut next = Some(range);
        while let Some(range) = next {
            let (page, following) = read_page(&body(&content, range, max_chars));
            prop_assert!(page.join("\n").chars().count() as u64 <= max_chars);
            seen.extend(page);
            next = following.map(Some);
        }
        let numbered: Vec<String> = (start..=end)
            .map(|number| format!("{number:>6}\t{}", lines[usize::try_from(number).unwrap() - 1]))
            .collect();
        prop_assert_eq!(seen, numbered);
    }

    #[test]
    fn no_page_is_longer_than_allowed_or_could_hold_one_more_line(
        content in "[a-z\né🦀]{0,200}", max_chars in 7..80_u64,
    ) {
        let shown = body(&content, None, max_chars);
        let (page, next) = read_page(&shown);
        let page_chars = page.join("\n").chars().count() as u64;
        prop_assert!(page_chars <= max_chars);
        let was_cut = shown.contains("\n\n[Line 1 cut: ");
        if was_cut {
            prop_assert_eq!(page_chars, max_chars);
        } else if next.is_some() {
            let following = content.split('\n').nth(page.len()).unwrap().chars().count() as u64;
            prop_assert!(page_chars + 1 + 7 + following > max_chars);
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
        let entries: Vec<DirectoryEntry<'_>> =
            names.iter().map(|(name, is_directory, size)| entry(name, *is_directory, *size)).collect();
        let total = entries.len() as u64 + extra;
        let text = view_directory(&path, 0, &entries, total, max_chars);
        let listing = text.split_once(":\n").unwrap().1;
        let (lines, notice) = listing.split_once("\n\n").unwrap_or((listing, ""));
        let shown = lines.split('\n').count() as u64 - 1;
        prop_assert!(shown <= max_entries_shown(&path, max_chars));
        prop_assert!(shown == 0 || lines.chars().count() as u64 <= max_chars);
        prop_assert_eq!(notice.is_empty(), shown == total);
        if shown < total {
            let left = total - shown;
            let expected = format!("[{left} more entries not shown. View a subdirectory to see them.]");
            prop_assert_eq!(notice, expected);
        }
        // Requesting only as many entries as the bound gives the same listing.
        let enough = usize::try_from(max_entries_shown(&path, max_chars)).unwrap().min(entries.len());
        prop_assert_eq!(view_directory(&path, 0, &entries[..enough], total, max_chars), text);
    }

    #[test]
    fn size_is_within_half_a_tenth_of_its_unit(bytes in 1024..1_u64 << 40) {
        let text = format_size(bytes);
        let (number, unit) = text.split_at(text.len() - 1);
        let unit_bytes = match unit { "K" => 1024.0, "M" => 1_048_576.0, _ => 1_073_741_824.0 };
        let number: f64 = number.parse().unwrap();
        #[expect(clippy::cast_precision_loss, reason = "sizes below 2^40 are exact")]
        let error = (number - bytes as f64 / unit_bytes).abs();
        prop_assert!(error <= 0.05 + 1e-9);
        prop_assert!(number >= 1.0 && (unit == "G" || number < 1024.0));
    }
}
