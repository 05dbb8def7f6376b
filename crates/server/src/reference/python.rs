//! Examples for Python: the `anthropic` SDK, or `httpx2`, which the SDK brings.

use super::call::{AnswerKind, Call, Credential};
use super::document::Node;
use super::sdk;
use super::syntax::{PYTHON, quoted};

/// Longest line of code.
const MAX_LINE_BYTES: usize = 88;

pub(super) fn example(call: &Call<'_>) -> String {
    match sdk::method_of(call.operation_id) {
        Some(method) => with_sdk(call, &method),
        None => with_httpx2(call),
    }
}

fn with_sdk(call: &Call<'_>, method: &str) -> String {
    let mut arguments = Vec::new();
    if let Some(((_, last), others)) = call.in_path.split_last() {
        arguments.push(quoted(last));
        arguments.extend(others.iter().map(|(name, value)| format!("{name}={}", quoted(value))));
    }
    let in_query = call.in_query.iter();
    arguments.extend(in_query.map(|(name, value)| format!("{name}={}", quoted(value))));
    if let Some(body) = &call.body {
        let written = |(name, value): (&str, &Node)| format!("{name}={}", PYTHON.written(value, "    "));
        arguments.extend(body.fields().map(written));
    }
    let sent = invocation(&format!("client.beta.{method}"), &arguments);
    let rest = match call.answer {
        AnswerKind::List => format!("for item in {sent}:\n    print(item)"),
        AnswerKind::Events => format!("for event in {sent}:\n    print(event)"),
        AnswerKind::Json | AnswerKind::Text | AnswerKind::File => format!("result = {sent}\nprint(result)"),
    };
    format!(
        "import os\n\nimport anthropic\n\n\
         client = anthropic.Anthropic(\n    \
         base_url=os.environ[\"KEEPSAKE_URL\"],\n    \
         api_key=os.environ[\"KEEPSAKE_API_KEY\"],\n)\n\
         {rest}"
    )
}

fn with_httpx2(call: &Call<'_>) -> String {
    let url = quoted(&call.target);
    let mut arguments = vec![format!("os.environ[\"KEEPSAKE_URL\"] + {url}")];
    if let Some((header, before, variable)) = call.credential.header() {
        let value = match call.credential {
            Credential::Token => format!("\"{before}\" + os.environ[\"{variable}\"]"),
            Credential::ApiKey | Credential::None => format!("os.environ[\"{variable}\"]"),
        };
        arguments.push(format!("headers={{\"{header}\": {value}}}"));
    }
    if let Some(body) = &call.body {
        arguments.push(format!("json={}", PYTHON.written(body, "    ")));
    }
    let rest = match call.answer {
        AnswerKind::Events => {
            arguments.insert(0, quoted(&call.method));
            // Without it, the stream breaks after five seconds without an event.
            arguments.push("timeout=None".to_owned());
            let sent = invocation("httpx2.stream", &arguments);
            format!(
                "with {sent} as response:\n    \
                 response.raise_for_status()\n    \
                 for line in response.iter_lines():\n        print(line)"
            )
        }
        AnswerKind::List | AnswerKind::Json => sent(call, &arguments, "print(response.json())"),
        AnswerKind::Text => sent(call, &arguments, "print(response.text)"),
        AnswerKind::File => sent(
            call,
            &arguments,
            "with open(\"archive.tar.zst\", \"wb\") as file:\n    file.write(response.content)",
        ),
    };
    format!("import os\n\nimport httpx2\n\n{rest}")
}

fn sent(call: &Call<'_>, arguments: &[String], rest: &str) -> String {
    let function = format!("httpx2.{}", call.method.to_lowercase());
    let sent = invocation(&function, arguments);
    format!("response = {sent}\nif response.is_error:\n    raise SystemExit(response.text)\n{rest}")
}

/// Writes a call of a function. It is on one line if it is short and has at most one argument;
/// else each argument has its own line.
fn invocation(function: &str, arguments: &[String]) -> String {
    let short = format!("{function}({})", arguments.join(", "));
    let is_short = short.len() <= MAX_LINE_BYTES && !short.contains('\n');
    if is_short && arguments.len() <= 1 {
        return short;
    }
    format!("{function}(\n    {},\n)", arguments.join(",\n    "))
}
