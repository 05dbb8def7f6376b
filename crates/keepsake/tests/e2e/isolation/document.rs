//! The operations that the server's own document names.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use super::cases::{self, CASES, Meaning, OPEN};
use super::fixture::Kind;

/// One method of one route.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) method: Method,
    /// With its parameters' names in braces.
    pub(super) path: String,
    pub(super) in_path: Vec<String>,
    pub(super) in_query: Vec<String>,
    /// But for `Idempotency-Key`.
    pub(super) in_headers: Vec<String>,
    pub(super) needs_credential: bool,
}

impl Operation {
    /// Whether its answer may lead to another page.
    pub(super) fn is_paged(&self) -> bool {
        self.in_query.iter().any(|name| name == "page")
    }

    /// The kinds of ids that its path names.
    pub(super) fn kinds_in_path(&self) -> Vec<Kind> {
        let meanings = self.in_path.iter().map(|name| cases::meaning(name));
        let kinds = meanings.filter_map(|meaning| match meaning {
            Meaning::Of(kind) => Some(kind),
            Meaning::Plain(_) => None,
        });
        kinds.collect()
    }
}

/// Every operation, in the document's order.
pub(super) fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let parameters: Vec<_> = parameters.iter().map(|given| resolved(document, given)).collect();
            let names = |place: &str| {
                let here = parameters.iter().filter(|parameter| parameter["in"] == place);
                here.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            // Every POST has one; MCP requests have other headers.
            let is_key = |name: &String| name == "Idempotency-Key";
            let (keys, in_headers) = names("header").into_iter().partition::<Vec<_>, _>(is_key);
            let is_idempotent = method == "post" && !path.starts_with("/mcp");
            assert_eq!(keys.len(), usize::from(is_idempotent), "{method} {path}");
            operations.push(Operation {
                id: operation["operationId"].as_str().unwrap().to_owned(),
                // The document fails to parse as HTTP where this is no method.
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                in_path: names("path"),
                in_query: names("query"),
                in_headers,
                needs_credential: operation["security"].as_array().is_none_or(|schemes| !schemes.is_empty()),
            });
        }
    }
    operations
}

/// A parameter, resolved if it is a reference.
fn resolved<'a>(document: &'a Value, parameter: &'a Value) -> &'a Value {
    match parameter["$ref"].as_str() {
        Some(place) => document.pointer(place.trim_start_matches('#')).unwrap(),
        None => parameter,
    }
}

/// Fails unless every operation has a case, every case an operation, and every
/// parameter a meaning.
pub(super) fn assert_complete(document: &Value) {
    let operations = operations(document);
    let ids = |needs_credential: bool| {
        let here = operations.iter().filter(|operation| operation.needs_credential == needs_credential);
        here.map(|operation| operation.id.as_str()).collect::<BTreeSet<_>>()
    };
    let guarded: BTreeSet<_> = CASES.iter().map(|(id, _)| *id).collect();
    assert_eq!(guarded.len(), CASES.len(), "an operation has two cases");
    assert_eq!(ids(true), guarded, "the document (left) and isolation/cases.rs differ");
    assert_eq!(ids(false), BTreeSet::from(OPEN), "no credential is needed (left)");
    for operation in &operations {
        let names = operation.in_path.iter().chain(&operation.in_query);
        for name in names.chain(&operation.in_headers) {
            cases::meaning(name);
        }
        let in_braces = operation.path.matches('{').count();
        assert_eq!(in_braces, operation.in_path.len(), "{}", operation.path);
        assert_eq!(
            operation.needs_credential,
            ["/v1/", "/mcp"].iter().any(|start| operation.path.starts_with(start)),
            "{}",
            operation.path
        );
    }
}
