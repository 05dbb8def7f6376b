//! The agent of a session: stored without interpretation, and always returned
//! in the one form that clients expect.

use std::collections::BTreeMap;

use keepsake_core::{JsonText, MendedJson, NOT_UNICODE};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::EngineError;
use crate::request_fields::{check_name, invalid};

const AGENT_BYTES: usize = 256 << 10;
/// Characters of an agent's name that lists show.
const NAME_CHARS: usize = 100;

/// An agent in the form of answers, with its fields for listings.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Agent {
    pub(super) shown: JsonText,
    pub(super) id: String,
    /// The beginning of its name, or its id.
    pub(super) name: String,
    pub(super) version: i64,
}

/// The fields of an object, each as JSON text.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// A field of an agent: the given text, or a default.
#[derive(Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Given(&'a RawValue),
    Made(Value),
}

/// An agent in the one form that clients expect.
#[derive(Serialize)]
struct AgentObject<'a> {
    r#type: &'static str,
    id: &'a str,
    version: i64,
    name: Field<'a>,
    description: Field<'a>,
    model: BTreeMap<String, Field<'a>>,
    system: Field<'a>,
    tools: Field<'a>,
    skills: Field<'a>,
    mcp_servers: Field<'a>,
    multiagent: Field<'a>,
    execution_identity: Field<'a>,
}

impl Agent {
    /// Parses an agent's id, or an object with the id and some fields.
    ///
    /// Fields are checked and copied as text: a tree of fields could take a hundred times
    /// as much memory.
    pub(super) fn resolve(given: &JsonText) -> Result<Self, EngineError> {
        if let Some(MendedJson { field, .. }) = MendedJson::of(given.as_str().as_bytes()) {
            // Not every client could parse a list of sessions with this agent.
            let place = if field.is_empty() { field } else { format!(", in its field `{field}`") };
            return invalid("agent", format!("{NOT_UNICODE}{place}"));
        }
        let mut given = match kind(given.as_str()) {
            Kind::String => Fields::from([("id".to_owned(), raw(given.as_str())?)]),
            Kind::Object => {
                let mut given = fields(given.as_str(), "agent")?;
                match given.remove("type").and_then(string).as_deref() {
                    Some("agent" | "agent_with_overrides") => given,
                    _ => return invalid("agent.type", "must be `agent` or `agent_with_overrides`"),
                }
            }
            Kind::List | Kind::Other => {
                return invalid("agent", "must be an agent's id, or an object with it");
            }
        };
        let Some(id) = given.remove("id").and_then(string) else {
            return invalid("agent.id", "must be a string");
        };
        check_name("agent.id", &id)?;
        // 0: the version was omitted, and the latest version is unknown here.
        let version = given.remove("version").map_or(Ok(0), |version| {
            let version = serde_json::from_str(version.get()).ok();
            let version = version.filter(|version| *version >= 0);
            version.map_or_else(|| invalid("agent.version", "must be an integer of at least 0"), Ok)
        })?;
        let null = || Field::Made(Value::Null);
        let list = || Field::Made(json!([]));
        // No database accepts NUL in a text.
        let name = given.get("name").copied().and_then(string).map(|name| name.replace('\0', ""));
        let name = name.filter(|name| !name.is_empty());
        let name: String = name.as_ref().unwrap_or(&id).chars().take(NAME_CHARS).collect();
        let shown = AgentObject {
            r#type: "agent",
            id: &id,
            version,
            name: take(&mut given, "agent.name", TEXT)?.unwrap_or(Field::Made(json!(""))),
            description: take(&mut given, "agent.description", TEXT)?.unwrap_or_else(null),
            model: model(given.remove("model"))?,
            system: take(&mut given, "agent.system", TEXT)?.unwrap_or_else(null),
            tools: take(&mut given, "agent.tools", OBJECTS)?.unwrap_or_else(list),
            skills: take(&mut given, "agent.skills", OBJECTS)?.unwrap_or_else(list),
            mcp_servers: take(&mut given, "agent.mcp_servers", OBJECTS)?.unwrap_or_else(list),
            multiagent: take(&mut given, "agent.multiagent", OBJECT)?.unwrap_or_else(null),
            execution_identity: take(&mut given, "agent.execution_identity", OBJECT)?
                .unwrap_or_else(|| Field::Made(json!({"type": "service_account"}))),
        };
        if let Some(unknown) = given.keys().next() {
            return invalid("agent", format!("has no field `{unknown}`"));
        }
        let shown = serde_json::to_string(&shown)
            .map_err(|_| EngineError::Internal("an agent that cannot be written"))?;
        let bytes = shown.len();
        if bytes > AGENT_BYTES {
            let rule = format!("must be at most {AGENT_BYTES} bytes as JSON, but is {bytes}");
            return invalid("agent", rule);
        }
        let shown = JsonText::from_trusted(&shown);
        Ok(Self { shown, id, name, version })
    }
}

/// The type of a JSON text, from its first character.
enum Kind {
    String,
    Object,
    List,
    Other,
}

fn kind(text: &str) -> Kind {
    match text.as_bytes().first() {
        Some(b'"') => Kind::String,
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::List,
        _ => Kind::Other,
    }
}

fn raw(text: &str) -> Result<&RawValue, EngineError> {
    serde_json::from_str(text).map_err(|_| EngineError::Internal("a text that is not JSON"))
}

/// Null fields are dropped.
fn fields<'a>(text: &'a str, field: &'static str) -> Result<Fields<'a>, EngineError> {
    let Ok(mut fields) = serde_json::from_str::<Fields<'a>>(text) else {
        return invalid(field, "must have names that are valid texts");
    };
    fields.retain(|_, value| value.get() != "null");
    Ok(fields)
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// A string is taken as the model's id.
fn model(given: Option<&RawValue>) -> Result<BTreeMap<String, Field<'_>>, EngineError> {
    let of_id = |id| Ok(BTreeMap::from([("id".to_owned(), id)]));
    let Some(given) = given else {
        return of_id(Field::Made(json!("")));
    };
    let mut fields = match kind(given.get()) {
        Kind::String => return of_id(Field::Given(given)),
        Kind::Object => fields(given.get(), "agent.model")?,
        Kind::List | Kind::Other => {
            return invalid("agent.model", "must be a model's id, or an object with it");
        }
    };
    if fields.get("id").copied().and_then(string).is_none() {
        return invalid("agent.model.id", "must be a string");
    }
    // The request may contain a string; the answer contains an object.
    let effort = fields.get("effort").copied().and_then(string);
    let effort = effort.map(|effort| Field::Made(json!({"type": effort})));
    if effort.is_some() {
        fields.remove("effort");
    }
    let given = fields.into_iter().map(|(name, value)| (name, Field::Given(value)));
    let effort = effort.map(|effort| ("effort".to_owned(), effort));
    Ok(given.chain(effort).collect())
}

/// A rule for a field: in words, and as a check of its JSON text.
type Rule = (&'static str, fn(&str) -> bool);

const TEXT: Rule = ("must be a string", |text| matches!(kind(text), Kind::String));
const OBJECT: Rule = ("must be an object", |text| matches!(kind(text), Kind::Object));
const OBJECTS: Rule = ("must be a list of objects", is_list_of_objects);

fn is_list_of_objects(text: &str) -> bool {
    let items = serde_json::from_str::<Vec<&RawValue>>(text);
    items.is_ok_and(|items| items.iter().all(|item| matches!(kind(item.get()), Kind::Object)))
}

/// Takes the field `agent.NAME` out of the object.
fn take<'a>(
    given: &mut Fields<'a>,
    field: &'static str,
    (rule, holds): Rule,
) -> Result<Option<Field<'a>>, EngineError> {
    match given.remove(field.trim_start_matches("agent.")) {
        Some(value) if !holds(value.get()) => invalid(field, rule),
        value => Ok(value.map(Field::Given)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(given: impl Into<JsonText>) -> Value {
        let agent = Agent::resolve(&given.into()).unwrap();
        serde_json::from_str(agent.shown.as_str()).unwrap()
    }

    #[test]
    fn every_form_of_an_agent_is_returned_as_the_same_object() {
        let bare = shown(json!("agent_1"));
        assert_eq!(shown(json!({"type": "agent", "id": "agent_1", "version": null})), bare);
        // An answer is accepted as a request unchanged.
        assert_eq!(shown(bare.clone()), bare);
        for (model, expected) in [
            (json!("m"), json!({"id": "m"})),
            (json!({"id": "m", "effort": "high"}), json!({"id": "m", "effort": {"type": "high"}})),
        ] {
            assert_eq!(shown(json!({"type": "agent", "id": "a", "model": model}))["model"], expected);
        }
    }

    #[test]
    fn invalid_agent_is_refused_by_field() {
        for (given, field) in [
            (json!(7), "agent"),
            (json!(""), "agent.id"),
            (json!("a\0"), "agent.id"),
            (json!({"id": "a"}), "agent.type"),
            (json!({"type": "robot", "id": "a"}), "agent.type"),
            (json!({"type": "agent"}), "agent.id"),
            (json!({"type": "agent", "id": "a", "version": -1}), "agent.version"),
            (json!({"type": "agent", "id": "a", "version": "1"}), "agent.version"),
            (json!({"type": "agent", "id": "a", "model": {}}), "agent.model.id"),
            (json!({"type": "agent", "id": "a", "tools": ["x"]}), "agent.tools"),
            (json!({"type": "agent", "id": "a", "sytem": "x"}), "agent"),
            (json!({"type": "agent", "id": "a", "system": "x".repeat(AGENT_BYTES)}), "agent"),
        ] {
            match Agent::resolve(&given.clone().into()) {
                Err(EngineError::Invalid { field: refused, .. }) => assert_eq!(refused, field, "{given}"),
                other => panic!("{given}: {other:?}"),
            }
        }
        let text = r#"{"type": "agent", "id": "a", "tools": [{"x": "\ud83d"}]}"#;
        match Agent::resolve(&JsonText::parse(text).unwrap()) {
            Err(EngineError::Invalid { rule, .. }) => assert!(rule.contains("`tools[0].x`"), "{rule}"),
            other => panic!("{other:?}"),
        }
    }
}
