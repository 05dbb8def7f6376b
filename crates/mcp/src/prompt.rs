//! The prompt that explains the memory to a model.

use keepsake_core::tool::{ProtocolOptions, protocol_text};
use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

const NAME: &str = "memory_protocol";
const DESCRIPTION: &str = "Tells a model to look at its memory first and to record its progress as it goes";
/// Maximum size of a topic, which is a short phrase.
const MAX_TOPIC_BYTES: usize = 1_000;

pub(crate) fn offered() -> Prompt {
    let arguments = vec![
        PromptArgument::new("keep_tidy")
            .with_description("`true` adds instructions for keeping the files in order")
            .with_required(false),
        PromptArgument::new("topic")
            .with_description("Limits the notes to this topic")
            .with_required(false),
    ];
    Prompt::new(NAME, Some(DESCRIPTION), Some(arguments)).with_title("Memory protocol")
}

pub(crate) fn get(name: &str, arguments: Option<&JsonObject>) -> Result<GetPromptResult, ErrorData> {
    if name != NAME {
        let message = format!("there is no prompt of this name; the only prompt is `{NAME}`");
        return Err(ErrorData::invalid_params(message, None));
    }
    let argument = |name: &str| match arguments.and_then(|arguments| arguments.get(name)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(ErrorData::invalid_params(
            format!("`{name}` must be a string"),
            None,
        )),
    };
    let keeps_tidy = match argument("keep_tidy")? {
        None | Some("" | "false") => false,
        Some("true") => true,
        Some(_) => {
            let message = "`keep_tidy` must be `true` or `false`";
            return Err(ErrorData::invalid_params(message, None));
        }
    };
    let topic = argument("topic")?;
    if topic.is_some_and(|topic| topic.len() > MAX_TOPIC_BYTES) {
        let message = format!("`topic` must be at most {MAX_TOPIC_BYTES} bytes");
        return Err(ErrorData::invalid_params(message, None));
    }
    let text = protocol_text(ProtocolOptions { keeps_tidy, topic });
    let mut result = GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]);
    result.description = Some(DESCRIPTION.to_owned());
    Ok(result)
}
