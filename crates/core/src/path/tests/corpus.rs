//! Paths from known and conceivable attacks on stores like this one.

/// Suffixes of paths below `/memories/` that could leave that directory.
#[rustfmt::skip]
pub(super) const HOSTILE: &[&str] = &[
    // Plain.
    "..", ".", "../", "./", "../etc/passwd", "../../etc/passwd", "../memories/a", "a/..", "a/.", "a/../b",
    "a/./b", "a/b/../../..", "../../../../../../../../../../../../../../../../../../../../../../etc/shadow",
    "/..", "//../", "a//../b",
    // With backslashes.
    "..\\..\\windows\\system32", "a\\..\\b", "a\\..", "\\..", "\\..\\", ".\\a", "..\\", "a/..\\../b",
    // Encoded twice or more.
    "%252e%252e/etc", "%252e%252e%252fetc", "..%252fetc", "..%255c..%255cetc", "%25252e%25252e%25252fetc",
    "%2525252525252e%2525252525252e/etc", "%%32e%%32e/etc", "%2%65%2%65/etc", "%%32%65%%32%65/etc",
    "%%%332e%%32e/etc", "%25%32%65%25%32%65/etc", "%25c0%25ae%25c0%25ae/etc", "%25u002e%25u002e/etc",
    // In UTF-16 units.
    "%u002e%u002e/etc", "%U002E%U002E/etc", "..%u002fetc", "..%u005cwindows",
    // Overlong, or with bits that decoders ignore.
    "%c0%ae%c0%ae/etc/passwd", "%c0%ae./etc", "%C0%AE%C0%AE%C0%AFetc", "..%c0%afetc/passwd",
    "..%c1%9cwindows", "..%c1%9c..%c1%9cwindows", "%e0%80%ae%e0%80%ae/etc", "..%e0%80%afetc",
    "%e0%81%9c..%e0%81%9c", "%f0%80%80%ae%f0%80%80%ae/etc", "..%f0%80%80%afetc",
    "%f8%80%80%80%ae%f8%80%80%80%ae/etc", "..%f8%80%80%80%afetc", "%fc%80%80%80%80%ae%fc%80%80%80%80%ae/etc",
    "%c0%2e%c0%2e/etc", "%c0%6e%c0%6e/etc", "..%c0%2fetc", "..%c0%6fetc", "..%c1%5cwindows",
    "%c0%a52e%c0%a52e/etc",
    // Percent-encoded.
    "%2e%2e/etc/passwd", "%2e%2e", "%2E%2E", "%2e", ".%2e/etc/passwd", "%2e./etc/passwd",
    "..%2f..%2fetc%2fpasswd", "..%2Fetc", "%2e%2e%2fetc", "a%2f..%2fb", "a%2f..", "a%2f.",
    "..%5c..%5cwindows", "..%5Cetc", "%2e%2e%5cetc", "%2e%2e%5C", "notes/%2e%2e/%2e%2e/%2e%2e/root",
    "..%0a/..",
    // With a control character, too.
    "../\0",
];

/// Suffixes of paths with a control character, plain or encoded.
#[rustfmt::skip]
pub(super) const CONTROLS: &[&str] = &[
    "a\0b", "\0", "a\nb", "a\r", "\tb", "\u{1b}[31m", "a\u{7f}", "a\u{80}", "a\u{85}", "a\u{9f}", "a%00.md",
    "..%00", "%00", "a%0a", "a%0D%0Ab", "a%7f", "a%2500", "a%252500", "a%c0%80", "a%c0%8a", "a%e0%80%80",
    "a%c2%85", "a%u0000", "a%1b",
];

/// Suffixes of paths that look odd but are valid.
#[rustfmt::skip]
pub(super) const LEGAL: &[&str] = &[
    "...", "....", "..a", "a..", "a..b", ".a", ".hidden/x", "a.", "100%", "100%.md", "%", "%%", "%2", "%zz",
    "50%25", "a%20b", "a%2Fb", "a%5Cb", "a\\b", "a\\", "%2e%2e%2e", "%2ehidden", "..%20", ".. ", " ..", "a b",
    " ", "~", "~root", "$HOME", "C:", "C:\\notes", "%FF", "%80", "%C3%A9", "%u00e9", "%u2024", "%uzzzz",
    "?q=..", "#..", "a;..", "*", "|", "\"quoted\"", "'", "`x`", "é", "日本語/メモ.md", "🦀", "\u{2025}",
    "\u{ff0e}\u{ff0e}", "\u{2215}..", "\u{a0}", "memories", "memories/memories", "node_modules/x",
    ".anthropic-memory-stores", "a/.anthropic-memory-store", "null", "-rf", "con",
];
