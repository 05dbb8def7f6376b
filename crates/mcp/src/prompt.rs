//! The prompt that explains the memory to a model.

use keepsake_core::Echo;
use keepsake_engine::{Engine, PromptOptions};
use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

use crate::Access;
use crate::error::to_error_data;

const NAME: &str = "memory_protocol";
const ARGUMENTS: [(&str, &str); 3] = [
    ("keep_tidy", "`true` adds instructions for keeping the files in order"),
    ("topic", "Limits the notes to this topic"),
    ("file_index", "`true` adds the files with their first lines"),
];
const DESCRIPTION: &str = "Tells a model to look at its memory first and to record its progress as it goes";

pub(crate) fn offered() -> Prompt {
    let arguments = ARGUMENTS.map(|(name, description)| {
        PromptArgument::new(name).with_description(description).with_required(false)
    });
    Prompt::new(NAME, Some(DESCRIPTION), Some(arguments.into())).with_title("Memory protocol")
}

pub(crate) async fn get(
    engine: &Engine,
    access: &Access,
    name: &str,
    arguments: Option<&JsonObject>,
) -> Result<GetPromptResult, ErrorData> {
    if name != NAME {
        let message = format!("there is no prompt of this name; the only prompt is `{NAME}`");
        return Err(ErrorData::invalid_params(message, None));
    }
    let mut names = arguments.into_iter().flat_map(JsonObject::keys);
    if let Some(unknown) = names.find(|name| !ARGUMENTS.iter().any(|(known, _)| known == name)) {
        let (unknown, known) = (Echo(unknown), ARGUMENTS.map(|(name, _)| name).join(", "));
        let message = format!("`{unknown}` is unknown; `{NAME}` has the arguments {known}");
        return Err(ErrorData::invalid_params(message, None));
    }
    let argument = |name: &str| match arguments.and_then(|arguments| arguments.get(name)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(ErrorData::invalid_params(format!("`{name}` must be a string"), None)),
    };
    let flag = |name: &str| match argument(name)? {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => {
            let message = format!("`{name}` must be `true` or `false`");
            Err(ErrorData::invalid_params(message, None))
        }
    };
    let topic = argument("topic")?.map(str::to_owned);
    let options = PromptOptions::new(flag("keep_tidy")?, topic, flag("file_index")?);
    let options = options.map_err(|error| to_error_data(&error))?;
    let text = engine
        .prompts
        .of_stores(&access.principal, Some(&access.mounts), &options)
        .await
        .map_err(|error| to_error_data(&error))?;
    let mut result = GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]);
    result.description = Some(DESCRIPTION.to_owned());
    Ok(result)
}
