//! The page as its templates need it.

use askama::Template;

use super::call::{Call, Credential};
use super::document::{Document, Node};
use super::fields::{self, Depth, FieldList};
use super::html::Html;
use super::syntax::JSON;
use super::types::{rules_of, type_of};
use super::{curl, python, typescript, value};

#[derive(Debug, Template)]
#[template(path = "reference/page.html")]
pub(super) struct Page {
    title: String,
    version: String,
    description: Html,
    /// Names of the style sheet and the script below `/docs`.
    style: String,
    script: String,
    icon: &'static str,
    mark: &'static str,
    sections: Vec<Section>,
    errors: Vec<Status>,
    objects: Vec<ObjectView>,
}

#[derive(Debug)]
struct Section {
    id: String,
    name: String,
    description: Html,
    operations: Vec<OperationView>,
}

#[derive(Debug)]
struct OperationView {
    id: String,
    /// In upper case.
    method: String,
    path: String,
    summary: String,
    description: Html,
    credential: &'static str,
    parameters: Option<FieldList>,
    body: Option<BodyView>,
    /// Successful responses.
    answers: Vec<Status>,
    errors: Vec<Status>,
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

#[derive(Debug, PartialEq, Eq)]
struct Status {
    code: String,
    description: Html,
    kind: Html,
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

impl Page {
    pub(super) fn new(document: &Document, style: String, script: String) -> Self {
        let sections = document.tags().iter().map(|tag| {
            let name = tag.text_of("name");
            let operations = document.operations(name);
            Section {
                id: format!("section-{}", name.to_lowercase().replace(' ', "-")),
                name: name.to_owned(),
                description: Html::prose(tag.text_of("description")),
                operations: operations
                    .map(|(method, path, operation)| OperationView::new(document, method, path, operation))
                    .collect(),
            }
        });
        let (info, objects) = (document.info(), document.schemas().fields());
        Self {
            title: info.text_of("title").to_owned(),
            version: info.text_of("version").to_owned(),
            description: Html::prose(info.text_of("description")),
            style,
            script,
            icon: keepsake_console::icon(),
            mark: keepsake_console::MARK,
            sections: sections.collect(),
            errors: document
                .shared_answers()
                .into_iter()
                .map(|(status, answer)| Status::new(document, status, answer))
                .collect(),
            objects: objects.map(|(name, schema)| ObjectView::new(document, name, schema)).collect(),
        }
    }
}

impl OperationView {
    fn new(document: &Document, method: &str, path: &str, operation: &Node) -> Self {
        let call = Call::new(document, method, path, operation);
        let parameters = document.parameters(operation);
        let parameters = Some(parameters).filter(|parameters| !parameters.is_empty());
        let answers = document.answers(operation);
        let (succeeded, failed): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|(status, _)| status.starts_with('2'));
        let status = |(status, answer): &(&str, &Node)| Status::new(document, status, answer);
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
            answers: succeeded.iter().map(status).collect(),
            errors: failed.iter().map(status).collect(),
            examples: examples.map(|(language, title, text)| Example { language, title, text }),
            answer_example: succeeded.first().and_then(|(_, answer)| answer_example(document, answer)),
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

impl Status {
    fn new(document: &Document, status: &str, answer: &Node) -> Self {
        let kind = answer.media().map(|(_, media)| type_of(document, media.at("schema")));
        Self {
            code: status.to_owned(),
            description: Html::prose(answer.text_of("description")),
            kind: kind.unwrap_or_default(),
        }
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
