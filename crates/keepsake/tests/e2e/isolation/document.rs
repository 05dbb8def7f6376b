use super::cases::{CASES, OPEN};
use super::*;

#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) method: Method,
    /// With kinds of ids in braces, as in all below.
    pub(super) path: String,
    /// Such as `depth=1`.
    pub(super) query: Vec<String>,
    /// But for `Idempotency-Key`.
    pub(super) headers: Vec<(String, &'static str)>,
    pub(super) needs_credential: bool,
}

impl Operation {
    pub(super) fn is_paged(&self) -> bool {
        self.query.iter().any(|parameter| parameter == "page={page}")
    }
}

pub(super) fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let names = |place: &str| {
                let all = parameters.iter().map(|given| resolved(document, given));
                let here = all.filter(|parameter| parameter["in"] == place);
                here.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            // Every POST has one; MCP requests have other headers.
            let is_key = |name: &String| name == "Idempotency-Key";
            let (keys, headers) = names("header").into_iter().partition::<Vec<_>, _>(is_key);
            let is_idempotent = method == "post" && !path.starts_with("/mcp");
            assert_eq!(keys.len(), usize::from(is_idempotent), "{method} {path}");
            let meant = |name: String| {
                let meaning = cases::meaning(&name);
                (name, meaning)
            };
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let query = names("query").into_iter().filter(|name| cases::is_sent(&id, name)).map(meant);
            operations.push(Operation {
                id: id.clone(),
                method: method.to_uppercase().parse().unwrap(),
                path: cases::meant(path),
                query: query.map(|(name, meaning)| format!("{name}={meaning}")).collect(),
                headers: headers.into_iter().map(meant).collect(),
                needs_credential: operation["security"].as_array().is_none_or(|schemes| !schemes.is_empty()),
            });
        }
    }
    operations
}

fn resolved<'a>(document: &'a Value, parameter: &'a Value) -> &'a Value {
    match parameter["$ref"].as_str() {
        Some(place) => document.pointer(place.trim_start_matches('#')).unwrap(),
        None => parameter,
    }
}

/// Fails unless every operation that may have a body has a case, and every case such an
/// operation. [`operations`] fails for a parameter without a meaning.
pub(super) fn assert_complete(document: &Value) {
    let operations = operations(document);
    let ids = |is_meant: fn(&Operation) -> bool| {
        let meant = operations.iter().filter(|operation| is_meant(operation));
        meant.map(|operation| operation.id.as_str()).collect::<BTreeSet<_>>()
    };
    let with_body = ids(|operation| [Method::POST, Method::PATCH, Method::PUT].contains(&operation.method));
    let cases: BTreeSet<_> = CASES.iter().map(|(id, _)| *id).collect();
    assert_eq!(with_body, cases, "the document (left) and isolation/cases.rs differ");
    let open = ids(|operation| !operation.needs_credential);
    assert_eq!(open, BTreeSet::from(OPEN), "no credential is needed (left)");
    let is_guarded = |path: &str| path.starts_with("/v1/") || path.starts_with("/mcp");
    for Operation { path, needs_credential, .. } in &operations {
        assert_eq!(*needs_credential, is_guarded(path), "{path}");
    }
}
