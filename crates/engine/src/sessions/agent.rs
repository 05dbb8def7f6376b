//! The agent of a session: kept, never looked into, and always answered in the
//! one form that clients know.

use serde_json::{Map, Value, json};

use super::draft::check_foreign_id;
use crate::EngineError;
use crate::stores::invalid;

/// Bytes of an agent as JSON, at most.
const AGENT_BYTES: usize = 256 << 10;

/// An agent as it is answered, and by what sessions are listed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Agent {
    pub(super) shown: Map<String, Value>,
    pub(super) id: String,
    pub(super) version: i64,
}

impl Agent {
    /// Reads the id of an agent, or an object with it and some of its fields.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for a field that is not what clients would find in
    /// an answer.
    pub(super) fn resolve(given: Value) -> Result<Self, EngineError> {
        let mut given = match given {
            Value::String(id) => Map::from_iter([("id".to_owned(), Value::String(id))]),
            Value::Object(mut given) => {
                given.retain(|_, value| !value.is_null());
                match given.remove("type").as_ref().and_then(Value::as_str) {
                    Some("agent" | "agent_with_overrides") => given,
                    _ => return invalid("agent.type", "must be `agent` or `agent_with_overrides`"),
                }
            }
            _ => return invalid("agent", "must be an agent's id, or an object with it"),
        };
        let Some(Value::String(id)) = given.remove("id") else {
            return invalid("agent.id", "must be a string");
        };
        check_foreign_id("agent.id", &id)?;
        // 0: the version was left out, and nothing here knows which is the latest.
        let version = given.remove("version").unwrap_or(json!(0));
        let Some(version) = version.as_i64().filter(|version| *version >= 0) else {
            return invalid("agent.version", "must be an integer of at least 0");
        };
        let shown = json!({
            "type": "agent",
            "id": id,
            "version": version,
            "name": text(&mut given, "name", "agent.name")?.unwrap_or_default(),
            "description": text(&mut given, "description", "agent.description")?,
            "model": model(given.remove("model"))?,
            "system": text(&mut given, "system", "agent.system")?,
            "tools": objects(&mut given, "tools", "agent.tools")?,
            "skills": objects(&mut given, "skills", "agent.skills")?,
            "mcp_servers": objects(&mut given, "mcp_servers", "agent.mcp_servers")?,
            "multiagent": object(&mut given, "multiagent", "agent.multiagent")?,
            "execution_identity": object(&mut given, "execution_identity", "agent.execution_identity")?
                .unwrap_or_else(|| Map::from_iter([("type".to_owned(), json!("service_account"))])),
        });
        if let Some(unknown) = given.keys().next() {
            return invalid("agent", format!("has no field `{unknown}`"));
        }
        let bytes = shown.to_string().len();
        let Value::Object(shown) = shown else {
            return Err(EngineError::Internal("an agent that is no object"));
        };
        if bytes > AGENT_BYTES {
            let rule = format!("must be at most {AGENT_BYTES} bytes as JSON, but is {bytes}");
            return invalid("agent", rule);
        }
        Ok(Self { shown, id, version })
    }
}

/// The model as an object, of which its id alone may be given.
fn model(given: Option<Value>) -> Result<Map<String, Value>, EngineError> {
    let mut model = match given {
        None => return Ok(Map::from_iter([("id".to_owned(), json!(""))])),
        Some(Value::String(id)) => return Ok(Map::from_iter([("id".to_owned(), Value::String(id))])),
        Some(Value::Object(model)) => model,
        Some(_) => return invalid("agent.model", "must be a model's id, or an object with it"),
    };
    if !model.get("id").is_some_and(Value::is_string) {
        return invalid("agent.model.id", "must be a string");
    }
    model.retain(|_, value| !value.is_null());
    // It may be given as a word, and is answered as an object.
    if let Some(Value::String(effort)) = model.get("effort") {
        let effort = json!({"type": effort});
        model.insert("effort".to_owned(), effort);
    }
    Ok(model)
}

fn text(
    given: &mut Map<String, Value>,
    name: &str,
    field: &'static str,
) -> Result<Option<String>, EngineError> {
    match given.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => invalid(field, "must be a string"),
    }
}

fn object(
    given: &mut Map<String, Value>,
    name: &str,
    field: &'static str,
) -> Result<Option<Map<String, Value>>, EngineError> {
    match given.remove(name) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => invalid(field, "must be an object"),
    }
}

fn objects(
    given: &mut Map<String, Value>,
    name: &str,
    field: &'static str,
) -> Result<Vec<Value>, EngineError> {
    match given.remove(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(objects)) if objects.iter().all(Value::is_object) => Ok(objects),
        Some(_) => invalid(field, "must be a list of objects"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(given: Value) -> Value {
        Value::Object(Agent::resolve(given).unwrap().shown)
    }

    #[test]
    fn every_form_is_answered_as_the_same_object() {
        let bare = json!({
            "type": "agent", "id": "agent_1", "version": 0, "name": "", "description": null,
            "model": {"id": ""}, "system": null, "tools": [], "skills": [], "mcp_servers": [],
            "multiagent": null, "execution_identity": {"type": "service_account"},
        });
        assert_eq!(shown(json!("agent_1")), bare);
        assert_eq!(
            shown(json!({"type": "agent", "id": "agent_1", "version": null})),
            bare
        );
        // What was answered is taken again as it is.
        assert_eq!(shown(bare.clone()), bare);
        let overridden = shown(json!({
            "type": "agent_with_overrides", "id": "agent_1", "version": 3, "model": {"id": "m", "effort": "high"},
            "system": "Be kind.", "tools": [{"type": "custom", "name": "x"}], "skills": [], "mcp_servers": [],
        }));
        assert_eq!(overridden["version"], 3);
        assert_eq!(
            overridden["model"],
            json!({"id": "m", "effort": {"type": "high"}})
        );
        assert_eq!(overridden["system"], "Be kind.");
        assert_eq!(overridden["tools"], json!([{"type": "custom", "name": "x"}]));
        assert_eq!(overridden["type"], "agent");
        assert_eq!(
            shown(json!({"type": "agent", "id": "a", "model": "m"}))["model"],
            json!({"id": "m"})
        );
    }

    #[test]
    fn what_is_no_agent_is_refused_by_field() {
        for (given, field) in [
            (json!(7), "agent"),
            (json!(""), "agent.id"),
            (json!("a\0"), "agent.id"),
            (json!({"id": "a"}), "agent.type"),
            (json!({"type": "robot", "id": "a"}), "agent.type"),
            (json!({"type": "agent"}), "agent.id"),
            (
                json!({"type": "agent", "id": "a", "version": -1}),
                "agent.version",
            ),
            (
                json!({"type": "agent", "id": "a", "version": "1"}),
                "agent.version",
            ),
            (json!({"type": "agent", "id": "a", "model": {}}), "agent.model.id"),
            (json!({"type": "agent", "id": "a", "tools": ["x"]}), "agent.tools"),
            (json!({"type": "agent", "id": "a", "sytem": "x"}), "agent"),
            (
                json!({"type": "agent", "id": "a", "system": "x".repeat(AGENT_BYTES)}),
                "agent",
            ),
        ] {
            match Agent::resolve(given.clone()) {
                Err(EngineError::Invalid { field: refused, .. }) => assert_eq!(refused, field, "{given}"),
                other => panic!("{given}: {other:?}"),
            }
        }
    }
}
