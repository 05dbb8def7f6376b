//! Parses the paths of requests.

use keepsake_core::{DirPath, MemoryPath};

use crate::EngineError;

/// A directory path that begins and ends with `/`.
pub(crate) fn parse_prefix(prefix: &str) -> Result<DirPath, EngineError> {
    parse_directory("path_prefix", prefix)
}

pub(crate) fn parse_directory(field: &'static str, text: &str) -> Result<DirPath, EngineError> {
    let invalid = |rule: String| EngineError::Invalid { field, rule };
    if text == "/" {
        return Ok(DirPath::root());
    }
    let Some(path) = text.strip_suffix('/') else {
        return Err(invalid("must end with `/`".to_owned()));
    };
    let path = MemoryPath::parse_normalised(path).map_err(|rule| invalid(rule.to_string()))?;
    Ok(path.as_dir())
}

pub(crate) fn parse_path(path: &str) -> Result<MemoryPath, EngineError> {
    MemoryPath::parse_normalised(path)
        .map_err(|rule| EngineError::Invalid { field: "path", rule: rule.to_string() })
}
