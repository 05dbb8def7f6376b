//! Examples for curl.

use super::call::{AnswerKind, Call};
use super::syntax::JSON;

pub(super) fn example(call: &Call<'_>) -> String {
    let mut parts = vec![format!("curl \"$KEEPSAKE_URL{}\"", call.target)];
    let has_default_method = call.method == if call.body.is_some() { "POST" } else { "GET" };
    if !has_default_method {
        parts.push(format!("--request {}", call.method));
    }
    if let Some((header, before, variable)) = call.credential.header() {
        parts.push(format!("--header \"{header}: {before}${variable}\""));
    }
    match call.answer {
        AnswerKind::Events => parts.push("--no-buffer".to_owned()),
        AnswerKind::File => parts.push("--output archive.tar.zst".to_owned()),
        AnswerKind::List | AnswerKind::Json | AnswerKind::Text => {}
    }
    if let Some(body) = &call.body {
        parts.push("--header \"content-type: application/json\"".to_owned());
        parts.push(format!("--data {}", quoted(&JSON.written(body, ""))));
    }
    parts.join(" \\\n  ")
}

/// Quotes text as one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
