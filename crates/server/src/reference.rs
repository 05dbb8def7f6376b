//! The OpenAPI document as an HTML page, without scripts and external
//! resources.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use utoipa::openapi::path::{Operation, Parameter, ParameterIn, PathItem};
use utoipa::openapi::schema::{ArrayItems, Components, Object, Schema, SchemaType};
use utoipa::openapi::{Content, OpenApi, RefOr, Required, Type};

use crate::openapi;

const STYLE: &str = include_str!("reference.css");

/// The HTML page.
pub(crate) fn page() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| written(&openapi::document()).unwrap_or_default());
    &PAGE
}

fn written(document: &OpenApi) -> Result<String, std::fmt::Error> {
    let mut page = String::with_capacity(64 << 10);
    let components = document.components.clone().unwrap_or_default();
    let title = text(&document.info.title);
    let description = document.info.description.as_deref().unwrap_or_default();
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
        <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
        <style>{STYLE}</style></head><body><h1>{title} <small>{}</small></h1><p>{}</p>\
        <p>For machines: <a href=\"openapi.json\">openapi.json</a></p>\n",
        text(&document.info.version),
        text(description)
    )?;
    let sections = document.tags.iter().flatten();
    for section in sections.clone() {
        writeln!(page, "<nav><b>{}</b>", text(&section.name))?;
        for (method, path, operation) in operations(document, &section.name) {
            let summary = operation.summary.as_deref().unwrap_or_default();
            let id = operation.operation_id.as_deref().unwrap_or_default();
            writeln!(
                page,
                "<a href=\"#{id}\">{} <code>{method} {}</code></a>",
                text(summary),
                text(path)
            )?;
        }
        page.push_str("</nav>\n");
    }
    for section in sections {
        let description = section.description.as_deref().unwrap_or_default();
        writeln!(
            page,
            "<h2>{}</h2><p>{}</p>",
            text(&section.name),
            text(description)
        )?;
        for (method, path, operation) in operations(document, &section.name) {
            write_operation(&mut page, &components, (method, path), operation)?;
        }
    }
    page.push_str("<h2>Objects</h2>\n");
    for (name, schema) in &components.schemas {
        write!(page, "<h3 id=\"schema-{name}\">{name}</h3>")?;
        write_schema(&mut page, schema)?;
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

/// The operations of a section, in the document's order.
fn operations<'a>(
    document: &'a OpenApi,
    section: &'a str,
) -> impl Iterator<Item = (&'static str, &'a str, &'a Operation)> {
    let of_item = |item: &'a PathItem| {
        [
            ("GET", &item.get),
            ("POST", &item.post),
            ("PATCH", &item.patch),
            ("DELETE", &item.delete),
        ]
    };
    let all = document.paths.paths.iter().flat_map(move |(path, item)| {
        of_item(item)
            .into_iter()
            .filter_map(|(method, operation)| Some((method, path.as_str(), operation.as_ref()?)))
    });
    all.filter(move |(_, _, operation)| operation.tags.iter().flatten().any(|tag| tag == section))
}

fn write_operation(
    page: &mut String,
    components: &Components,
    (method, path): (&str, &str),
    operation: &Operation,
) -> std::fmt::Result {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    let summary = operation.summary.as_deref().unwrap_or_default();
    let description = operation.description.as_deref().unwrap_or_default();
    writeln!(
        page,
        "<h3 id=\"{id}\">{}</h3><p><code>{method} {}</code></p><p>{}</p>",
        text(summary),
        text(path),
        text(description)
    )?;
    let parameters: Vec<_> = operation
        .parameters
        .iter()
        .flatten()
        .filter_map(|parameter| resolved(parameter, &components.parameters))
        .collect();
    if !parameters.is_empty() {
        page.push_str("<table><tr><th>parameter</th><th>in</th><th>type</th><th></th></tr>\n");
        for parameter in parameters {
            write_parameter(page, parameter)?;
        }
        page.push_str("</table>\n");
    }
    if let Some(RefOr::T(body)) = &operation.request_body {
        let is_required = body.required == Some(Required::True);
        let optional = if is_required { "" } else { ", optional" };
        let types = body.content.values().map(type_of_content).collect::<String>();
        writeln!(page, "<p>Body: {types}{optional}</p>")?;
    }
    page.push_str("<table><tr><th>status</th><th>answer</th><th></th></tr>\n");
    for (status, response) in &operation.responses.responses {
        if let Some(response) = resolved(response, &components.responses) {
            let types = response.content.values().map(type_of_content).collect::<String>();
            let description = text(&response.description);
            writeln!(
                page,
                "<tr><td>{status}</td><td>{types}</td><td>{description}</td></tr>"
            )?;
        }
    }
    page.push_str("</table>\n");
    Ok(())
}

fn write_parameter(page: &mut String, parameter: &Parameter) -> std::fmt::Result {
    let place = match parameter.parameter_in {
        ParameterIn::Path => "path",
        ParameterIn::Query => "query",
        ParameterIn::Header => "header",
        _ => "request",
    };
    let kind = parameter.schema.as_ref().map(type_of).unwrap_or_default();
    let description = parameter.description.as_deref().unwrap_or_default();
    writeln!(
        page,
        "<tr><td><code>{}</code></td><td>{place}</td><td>{kind}</td><td>{}</td></tr>",
        text(&parameter.name),
        text(description)
    )
}

fn write_schema(page: &mut String, schema: &RefOr<Schema>) -> std::fmt::Result {
    let RefOr::T(schema) = schema else {
        return writeln!(page, "<p>{}</p>", type_of(schema));
    };
    let (description, parts): (_, &[RefOr<Schema>]) = match schema {
        Schema::Object(object) => (&object.description, &[]),
        Schema::OneOf(one_of) => (&one_of.description, &one_of.items),
        Schema::AllOf(all_of) => (&all_of.description, &all_of.items),
        Schema::AnyOf(any_of) => (&any_of.description, &any_of.items),
        _ => (&None, &[]),
    };
    let description = description.as_deref().unwrap_or_default();
    writeln!(page, "<p>{}</p>", text(description))?;
    if let Schema::Object(object) = schema {
        write_object(page, object)?;
    }
    if matches!(schema, Schema::OneOf(_)) {
        page.push_str("<p>One of:</p>\n");
    }
    parts.iter().try_for_each(|part| write_schema(page, part))
}

fn write_object(page: &mut String, object: &Object) -> std::fmt::Result {
    if object.properties.is_empty() {
        return writeln!(page, "<p>{}{}</p>", type_of_object(object), rules_of(object));
    }
    page.push_str("<table><tr><th>field</th><th>type</th><th></th></tr>\n");
    for (name, property) in &object.properties {
        let is_required = object.required.contains(name);
        let optional = if is_required { "" } else { " <i>optional</i>" };
        writeln!(
            page,
            "<tr><td><code>{}</code>{optional}</td><td>{}</td><td>{}</td></tr>",
            text(name),
            type_of(property),
            text(description_of(property))
        )?;
    }
    page.push_str("</table>\n");
    Ok(())
}

/// The value itself, or the component that it refers to.
fn resolved<'a, T>(value: &'a RefOr<T>, components: &'a BTreeMap<String, RefOr<T>>) -> Option<&'a T> {
    let place = match value {
        RefOr::T(value) => return Some(value),
        RefOr::Ref(place) => last_of(&place.ref_location),
    };
    match components.get(place)? {
        RefOr::T(value) => Some(value),
        RefOr::Ref(_) => None,
    }
}

fn last_of(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or_default()
}

fn type_of_content(content: &RefOr<Content>) -> String {
    match content {
        RefOr::T(content) => content.schema.as_ref().map(type_of).unwrap_or_default(),
        RefOr::Ref(_) => String::new(),
    }
}

/// The type of a value, as a word or a link.
fn type_of(schema: &RefOr<Schema>) -> String {
    let any_of = |items: &[RefOr<Schema>]| items.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    match schema {
        RefOr::Ref(place) => {
            let name = last_of(&place.ref_location);
            format!("<a href=\"#schema-{name}\">{name}</a>")
        }
        RefOr::T(Schema::Object(object)) => type_of_object(object),
        RefOr::T(Schema::OneOf(one_of)) => any_of(&one_of.items),
        RefOr::T(Schema::AnyOf(one_of)) => any_of(&one_of.items),
        RefOr::T(Schema::Array(array)) => {
            let items = match &array.items {
                ArrayItems::RefOrSchema(items) => type_of(items),
                ArrayItems::False => String::new(),
            };
            let or_null = if matches!(array.schema_type, SchemaType::Array(_)) {
                " or null"
            } else {
                ""
            };
            format!("list of {items}{or_null}")
        }
        RefOr::T(_) => "object".to_owned(),
    }
}

fn type_of_object(object: &Object) -> String {
    if let Some(words) = &object.enum_values {
        let words = words
            .iter()
            .map(|word| format!("<code>{}</code>", text(&word.to_string())));
        return words.collect::<Vec<_>>().join(", ");
    }
    match &object.schema_type {
        SchemaType::Type(kind) => name_of(kind).to_owned(),
        SchemaType::Array(kinds) => kinds.iter().map(name_of).collect::<Vec<_>>().join(" or "),
        SchemaType::AnyValue => "anything".to_owned(),
    }
}

const fn name_of(kind: &Type) -> &'static str {
    match kind {
        Type::Object => "object",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::Array => "list",
        Type::Null => "null",
    }
}

fn rules_of(object: &Object) -> String {
    let pattern = object.pattern.as_deref();
    pattern.map_or_else(String::new, |pattern| {
        format!(", <code>{}</code>", escaped(pattern))
    })
}

fn description_of(schema: &RefOr<Schema>) -> &str {
    match schema {
        RefOr::Ref(place) => &place.description,
        RefOr::T(Schema::Object(object)) => object.description.as_deref().unwrap_or_default(),
        RefOr::T(Schema::Array(array)) => array.description.as_deref().unwrap_or_default(),
        RefOr::T(Schema::OneOf(one_of)) => one_of.items.first().map(description_of).unwrap_or_default(),
        RefOr::T(Schema::AnyOf(any_of)) => any_of.description.as_deref().unwrap_or_default(),
        RefOr::T(_) => "",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Text as HTML, with the parts between backticks as code.
fn text(text: &str) -> String {
    let escaped = escaped(text);
    let mut html = String::with_capacity(escaped.len());
    for (position, part) in escaped.split('`').enumerate() {
        match position {
            0 => {}
            odd if odd % 2 == 1 => html.push_str("<code>"),
            _ => html.push_str("</code>"),
        }
        html.push_str(part);
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_every_operation_and_loads_nothing_external() {
        let page = page();
        for piece in [
            "id=\"memories.update\"",
            "DELETE /v1/memory_stores/",
            "id=\"schema-MemoryVersion\"",
        ] {
            assert!(page.contains(piece), "{piece}");
        }
        for foreign in ["<script", "http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn every_link_of_the_page_has_a_target() {
        let page = page();
        for link in page.split("href=\"#").skip(1) {
            let place = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{place}\"")), "{place}");
        }
    }

    #[test]
    fn text_is_escaped_and_code_marked() {
        assert_eq!(text("a `<b>` & c"), "a <code>&lt;b&gt;</code> &amp; c");
    }
}
