//! The name of a store's directory in a session.

/// The slug of a name without any letter or digit.
const NAMELESS: &str = "memory";

/// The directory name for a store, different from the names in `taken`.
///
/// The name in lower case, with each run of other characters than ASCII letters and
/// digits replaced by one hyphen, and no hyphen at either end. If that name is
/// taken, `-2`, `-3` and so on is appended.
pub fn slug_of(name: &str, taken: &[&str]) -> String {
    let lower = name.to_lowercase();
    let words: Vec<_> =
        lower.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let slug = if words.is_empty() { NAMELESS.to_owned() } else { words.join("-") };
    let numbered = (2_u32..).map(|number| format!("{slug}-{number}"));
    let mut candidates = std::iter::once(slug.clone()).chain(numbered);
    let free = candidates.find(|candidate| !taken.contains(&candidate.as_str()));
    free.unwrap_or(slug)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slug_is_made_of_the_name_and_gets_a_number_if_it_is_taken() {
        for (name, taken, slug) in [
            ("User Preferences", &[][..], "user-preferences"),
            ("  --a__b!!  ", &[], "a-b"),
            ("Größe", &[], "gr-e"),
            ("\u{212a}elvin", &[], "kelvin"),
            ("노트", &[], "memory"),
            ("!", &["memory"], "memory-2"),
            ("Notes", &["notes", "notes-2"], "notes-3"),
            // A store whose name looks like a numbered slug.
            ("notes 2", &["notes", "notes-2"], "notes-2-2"),
        ] {
            assert_eq!(slug_of(name, taken), slug, "{name}");
        }
    }

    proptest! {
        #[test]
        fn slug_is_one_plain_segment_that_is_free(name: String, others: Vec<String>) {
            let mut taken: Vec<String> = Vec::new();
            for other in others.iter().chain([&name, &name]) {
                let slugs: Vec<_> = taken.iter().map(String::as_str).collect();
                let slug = slug_of(other, &slugs);
                prop_assert!(!taken.contains(&slug));
                prop_assert!(!slug.starts_with('-') && !slug.ends_with('-') && !slug.contains("--"));
                prop_assert!(slug.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit()));
                taken.push(slug);
            }
        }
    }
}
