//! An example request of an operation, before it is written in a language.

use keepsake_console::encoded;

use super::document::{Document, Node};
use super::value;

/// A request with example values for everything that is required.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) operation_id: &'a str,
    /// In upper case.
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    /// Names and values in the path, in its order.
    pub(super) in_path: Vec<(&'a str, String)>,
    pub(super) in_query: Vec<(&'a str, String)>,
    pub(super) body: Option<Node>,
    pub(super) credential: Credential,
    pub(super) answer: AnswerKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credential {
    ApiKey,
    /// A session's token.
    Token,
    None,
}

impl Credential {
    /// Name of the header, prefix of its value, and environment variable with the credential.
    pub(super) const fn header(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::ApiKey => Some(("x-api-key", "", "KEEPSAKE_API_KEY")),
            Self::Token => Some(("authorization", "Bearer ", "KEEPSAKE_SESSION_TOKEN")),
            Self::None => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// A page of a listing.
    List,
    Json,
    Text,
    Events,
    File,
}

impl<'a> Call<'a> {
    pub(super) fn new(document: &'a Document, method: &str, path: &str, operation: &'a Node) -> Self {
        let parameters = document.parameters(operation);
        let in_place = |place: &str| {
            let wanted = parameters
                .iter()
                .filter(|parameter| parameter.is_true("required") && parameter.text_of("in") == place);
            let examples = wanted.map(|parameter| {
                (parameter.text_of("name"), value::parameter(document, parameter.at("schema")))
            });
            examples.collect::<Vec<_>>()
        };
        let (in_path, in_query) = (in_place("path"), in_place("query"));
        let path = in_path
            .iter()
            .fold(path.to_owned(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value));
        let pair = |(name, value): &(&str, String)| format!("{}={}", encoded(name), encoded(value));
        let query: Vec<_> = in_query.iter().map(pair).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        Self {
            operation_id: operation.text_of("operationId"),
            method: method.to_uppercase(),
            target: format!("{path}{mark}{}", query.join("&")),
            in_path,
            in_query,
            body: body(document, operation),
            credential: credential(operation),
            answer: answer_kind(document, operation),
        }
    }
}

fn body(document: &Document, operation: &Node) -> Option<Node> {
    let body = operation.get("requestBody").filter(|body| body.is_true("required"))?;
    let (_, media) = body.media()?;
    let example = media.get("example").cloned();
    Some(example.unwrap_or_else(|| value::request(document, media.at("schema"))))
}

fn credential(operation: &Node) -> Credential {
    let schemes = operation.at("security").items();
    let accepts = |scheme: &str| schemes.iter().any(|one| one.get(scheme).is_some());
    if accepts("api_key") {
        Credential::ApiKey
    } else if accepts("bearer") {
        Credential::Token
    } else {
        Credential::None
    }
}

fn answer_kind(document: &Document, operation: &Node) -> AnswerKind {
    let answers = document.answers(operation);
    let succeeded = answers.iter().find(|(status, _)| *status == "200");
    let Some((media_type, media)) = succeeded.and_then(|(_, answer)| answer.media()) else {
        return AnswerKind::Text;
    };
    let is_list = media.at("schema").component().is_some_and(|name| name.starts_with("List_"));
    match media_type {
        "application/json" if is_list => AnswerKind::List,
        "application/json" => AnswerKind::Json,
        "text/event-stream" => AnswerKind::Events,
        "application/zstd" => AnswerKind::File,
        _ => AnswerKind::Text,
    }
}
