//! The page as its templates need it.

use askama::Template;

use super::call::{Call, Credential};
use super::document::{Document, Node};
use super::fields::{self, Depth, FieldList};
use super::html::Html;
use super::syntax::JSON;
use super::types::{rules_of, type_of};
use super::{curl, python, typescript, value};

#[derive(Template)]
#[template(path = "reference/page.html")]
pub(super) struct Page<'a> {
    pub(super) document: &'a Document,
    /// Names of the style sheet and the script below `/docs`.
    pub(super) style: String,
    pub(super) script: String,
}

/// The id of a section, by its name.
fn section_id(name: &str) -> String {
    format!("section-{}", name.to_lowercase().replace(' ', "-"))
}

/// The type of a response; empty: it has no content.
fn kind_of(document: &Document, answer: &Node) -> Html {
    let kind = answer.media().map(|(_, media)| type_of(document, media.at("schema")));
    kind.unwrap_or_default()
}

#[derive(Debug)]
struct OperationView<'a> {
    id: String,
    /// In upper case.
    method: String,
    path: String,
    summary: String,
    description: Html,
    credential: &'static str,
    parameters: Option<FieldList>,
    body: Option<BodyView>,
    /// Successful responses with their statuses.
    answers: Vec<(&'a str, &'a Node)>,
    errors: Vec<(&'a str, &'a Node)>,
    examples: [Example; 3],
    /// A response as JSON.
    answer_example: Option<String>,
}

#[derive(Debug)]
struct BodyView {
    kind: Html,
    description: Html,
    is_required: bool,
    /// Fields of the body; several lists are alternatives.
    lists: Vec<FieldList>,
}

#[derive(Debug)]
struct Example {
    /// In ids and classes.
    language: &'static str,
    title: &'static str,
    text: String,
}

#[derive(Debug)]
struct ObjectView {
    name: String,
    /// Empty for an object, whose fields describe it.
    kind: Html,
    description: Html,
    rules: Vec<Html>,
    lists: Vec<FieldList>,
}

impl<'a> OperationView<'a> {
    fn new(document: &'a Document, method: &str, path: &str, operation: &'a Node) -> Self {
        let call = Call::new(document, method, path, operation);
        let parameters = document.parameters(operation);
        let parameters = Some(parameters).filter(|parameters| !parameters.is_empty());
        let answers = document.answers(operation);
        let (answers, errors): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|(status, _)| status.starts_with('2'));
        let examples = [
            ("curl", "curl", curl::example(&call)),
            ("python", "Python", python::example(&call)),
            ("typescript", "TypeScript", typescript::example(&call)),
        ];
        let body = operation.get("requestBody");
        Self {
            id: operation.text_of("operationId").to_owned(),
            method: call.method.clone(),
            path: path.to_owned(),
            summary: operation.text_of("summary").to_owned(),
            description: Html::prose(operation.text_of("description")),
            credential: match call.credential {
                Credential::ApiKey => "an API key or a JWT",
                Credential::Token => "a session's token",
                Credential::None => "none",
            },
            parameters: parameters.map(|parameters| fields::of_parameters(document, &parameters)),
            body: body.and_then(|body| BodyView::new(document, body)),
            examples: examples.map(|(language, title, text)| Example { language, title, text }),
            answer_example: answers.first().and_then(|(_, answer)| answer_example(document, answer)),
            answers,
            errors,
        }
    }
}

/// `None`: the response is not JSON, or its schema does not describe it.
fn answer_example(document: &Document, answer: &Node) -> Option<String> {
    let (media_type, media) = answer.media()?;
    let schema = media.at("schema");
    (media_type == "application/json" && schema.component().is_some())
        .then(|| JSON.written(&value::answer(document, schema), ""))
}

impl BodyView {
    fn new(document: &Document, body: &Node) -> Option<Self> {
        let schema = body.media()?.1.at("schema");
        let description = body.get("description").unwrap_or(document.resolved(schema).at("description"));
        Some(Self {
            kind: type_of(document, schema),
            description: Html::prose(description.as_text()),
            is_required: body.is_true("required"),
            lists: fields::of_schema(document, schema, Depth::Components),
        })
    }
}

impl ObjectView {
    fn new(document: &Document, name: &str, schema: &Node) -> Self {
        let lists = fields::of_schema(document, schema, Depth::Inline);
        let has_fields_only = !lists.is_empty() && lists.len() >= schema.choices().count();
        let mut rules = rules_of(document, schema);
        let examples = schema.at("examples").items().iter().filter(|_| lists.is_empty());
        rules.extend(examples.map(|example| Html::code(&JSON.written(example, " ")).after("Example: ")));
        Self {
            name: name.to_owned(),
            kind: if has_fields_only { Html::default() } else { type_of(document, schema) },
            description: Html::prose(schema.text_of("description")),
            rules,
            lists,
        }
    }
}
