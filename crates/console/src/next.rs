//! The page that a person sees after the sign-in.

/// The page after the sign-in, if the person requested none.
pub(crate) const HOME: &str = "/console/overview";
pub(crate) const OPERATOR_HOME: &str = "/console/health";
/// Longer paths are not kept.
const MAX_BYTES: usize = 2_000;

/// Whether a text is a path of the console.
///
/// A browser reads `//host`, `/\host` and control characters in surprising ways, so only printable
/// ASCII without a backslash is accepted, below `/console/`, without `//` and without segments of
/// dots.
pub(crate) fn is_safe(next: &str) -> bool {
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let has_only_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let has_no_dots = path.split('/').all(|segment| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain != "." && plain != ".."
    });
    next.len() <= MAX_BYTES
        && has_only_plain
        && path.starts_with("/console/")
        && !path.contains("//")
        && has_no_dots
        && !path.starts_with("/console/sign-")
}

/// `next` if it is a page of the console, or else `home`.
pub(crate) fn or_home<'a>(next: Option<&'a str>, home: &'a str) -> &'a str {
    next.filter(|next| is_safe(next)).unwrap_or(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_console_are_accepted() {
        for next in
            ["/console/stores", "/console/stores/memstore_01?path=/a/&page=x", "/console/search?q=a%20b#x"]
        {
            assert!(is_safe(next), "{next}");
        }
        let long = format!("/console/stores?{}", "a".repeat(MAX_BYTES));
        let foreign = "/ /v1/audit /consolex /console https://evil.example/console/ //evil.example/console/ \
                       /console//evil.example /\\evil.example /console/\\evil /console/../v1 /console/%2e%2E/v1 \
                       /console/./x /console/ä javascript:alert(1) /console/sign-out /console/sign-in/once?token=x";
        let with_spaces = ["", "/console/\nx", "/console/\tx", " /console/stores", &long];
        for next in foreign.split(' ').chain(with_spaces) {
            assert_eq!(or_home(Some(next), HOME), HOME, "{next:?}");
        }
    }
}
