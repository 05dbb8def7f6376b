//! Examples for TypeScript, which are JavaScript too: the official SDK, or `fetch`.

use indexmap::IndexMap;

use super::call::{AnswerKind, Call};
use super::document::Node;
use super::sdk;
use super::syntax::{TYPESCRIPT, is_identifier, quoted};

pub(super) fn example(call: &Call<'_>) -> String {
    match sdk::method_of(call.operation_id) {
        Some(method) => with_sdk(call, &method),
        None => with_fetch(call),
    }
}

fn with_sdk(call: &Call<'_>, method: &str) -> String {
    let mut arguments = Vec::new();
    let mut fields = IndexMap::new();
    let field = |(name, value): &(&str, String)| ((*name).to_owned(), Node::text(value));
    if let Some(((_, last), others)) = call.in_path.split_last() {
        arguments.push(quoted(last));
        fields.extend(others.iter().map(field));
    }
    fields.extend(call.in_query.iter().map(field));
    if let Some(Node::Object(body)) = &call.body {
        fields.extend(body.clone());
    }
    if !fields.is_empty() {
        arguments.push(TYPESCRIPT.written(&Node::Object(fields), ""));
    }
    let sent = format!("client.beta.{}({})", camel_case(method), arguments.join(", "));
    let rest = match call.answer {
        AnswerKind::List => format!("for await (const item of {sent}) {{\n  console.log(item);\n}}"),
        AnswerKind::Events => {
            format!("for await (const event of await {sent}) {{\n  console.log(event);\n}}")
        }
        AnswerKind::Json | AnswerKind::Text | AnswerKind::File => {
            format!("const result = await {sent};\nconsole.log(result);")
        }
    };
    format!(
        "import Anthropic from \"@anthropic-ai/sdk\";\n\n\
         const client = new Anthropic({{\n  \
         baseURL: process.env.KEEPSAKE_URL,\n  \
         apiKey: process.env.KEEPSAKE_API_KEY,\n}});\n\
         {rest}"
    )
}

fn with_fetch(call: &Call<'_>) -> String {
    let url = format!("`${{process.env.KEEPSAKE_URL}}{}`", call.target);
    let mut options = Vec::new();
    if call.method != "GET" {
        options.push(format!("method: {}", quoted(&call.method)));
    }
    let mut headers = Vec::new();
    if let Some((header, before, variable)) = call.credential.header() {
        let name = if is_identifier(header) { header.to_owned() } else { quoted(header) };
        headers.push(format!("{name}: `{before}${{process.env.{variable}}}`"));
    }
    if call.body.is_some() {
        headers.push("\"content-type\": \"application/json\"".to_owned());
    }
    match headers.as_slice() {
        [] => {}
        [only] => options.push(format!("headers: {{ {only} }}")),
        several => options.push(format!("headers: {{\n    {},\n  }}", several.join(",\n    "))),
    }
    if let Some(body) = &call.body {
        options.push(format!("body: JSON.stringify({})", TYPESCRIPT.written(body, "  ")));
    }
    let request = if options.is_empty() {
        format!("fetch({url})")
    } else {
        format!("fetch({url}, {{\n  {},\n}})", options.join(",\n  "))
    };
    let rest = match call.answer {
        AnswerKind::List | AnswerKind::Json => "console.log(await response.json());",
        AnswerKind::Text => "console.log(await response.text());",
        AnswerKind::Events => {
            "for await (const part of response.body ?? []) {\n  process.stdout.write(part);\n}"
        }
        AnswerKind::File => {
            "await writeFile(\"archive.tar.zst\", Buffer.from(await response.arrayBuffer()));"
        }
    };
    let imports = match call.answer {
        AnswerKind::File => "import { writeFile } from \"node:fs/promises\";\n\n",
        AnswerKind::List | AnswerKind::Json | AnswerKind::Text | AnswerKind::Events => "",
    };
    format!(
        "{imports}const response = await {request};\n\
         if (!response.ok) throw new Error(await response.text());\n\
         {rest}"
    )
}

/// The parts of a method's name in camel case: `memoryStores.list`.
fn camel_case(method: &str) -> String {
    let mut name = String::with_capacity(method.len());
    let mut is_start = false;
    for character in method.chars() {
        if character == '_' {
            is_start = true;
        } else if is_start {
            name.push(character.to_ascii_uppercase());
            is_start = false;
        } else {
            name.push(character);
        }
    }
    name
}
