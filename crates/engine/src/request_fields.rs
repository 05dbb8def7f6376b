//! Parses and checks fields of requests.

use keepsake_core::{DirPath, MemoryPath, PathError, Timestamp};

use crate::EngineError;

const NAME_CHARS: usize = 255;

pub(crate) fn invalid<T>(field: &'static str, rule: impl Into<String>) -> Result<T, EngineError> {
    Err(EngineError::invalid(field, rule))
}

/// Checks a name, or an id that a client has chosen.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), EngineError> {
    if (1..=NAME_CHARS).contains(&name.chars().count()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    invalid(field, format!("must be 1 to {NAME_CHARS} characters without control characters"))
}

/// Checks an optional text with a maximum length.
pub(crate) fn check_text(
    field: &'static str,
    text: Option<&str>,
    max_chars: usize,
) -> Result<(), EngineError> {
    let text = text.unwrap_or_default();
    let chars = text.chars().count();
    if chars > max_chars {
        return invalid(field, format!("must be at most {max_chars} characters, but is {chars}"));
    }
    if text.contains('\0') {
        return invalid(field, "must not contain NUL");
    }
    Ok(())
}

pub(crate) fn parse_time(field: &'static str, text: &str) -> Result<Timestamp, EngineError> {
    Timestamp::parse(text).map_or_else(|| invalid(field, "must be a date or a time in RFC 3339 format"), Ok)
}

/// A directory path that begins and ends with `/`.
pub(crate) fn parse_prefix(prefix: &str) -> Result<DirPath, EngineError> {
    parse_directory("path_prefix", prefix)
}

pub(crate) fn parse_directory(field: &'static str, text: &str) -> Result<DirPath, EngineError> {
    if text == "/" {
        return Ok(DirPath::root());
    }
    let Some(path) = text.strip_suffix('/') else {
        return invalid(field, "must end with `/`");
    };
    let path = MemoryPath::parse_normalised(path).map_err(|rule| match rule {
        // `//` without its last slash is the root.
        PathError::IsRoot => PathError::EmptySegment,
        rule => rule,
    });
    let path = path.map_err(|rule| EngineError::invalid(field, rule.to_string()))?;
    Ok(path.as_dir())
}

pub(crate) fn parse_path(path: &str) -> Result<MemoryPath, EngineError> {
    MemoryPath::parse_normalised(path).map_err(|rule| EngineError::invalid("path", rule.to_string()))
}
