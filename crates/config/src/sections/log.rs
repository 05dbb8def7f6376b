//! `[log]`

use toml::Value;
use tracing_subscriber::EnvFilter;

use crate::checks::{one_of, text};
use crate::reader::Reader;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Human,
    /// One JSON object for each line.
    Json,
}

#[derive(Debug, Clone)]
pub struct LogSettings {
    pub format: LogFormat,
    /// In the syntax of `tracing`'s `EnvFilter`.
    pub filter: String,
}

impl LogSettings {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let formats = [("human", LogFormat::Human), ("json", LogFormat::Json)];
        Self {
            format: reader.get("log.format", "human", one_of(&formats)),
            filter: reader.get("log.filter", "info", filter),
        }
    }
}

fn filter(value: &Value) -> Result<String, String> {
    let filter = text(value)?;
    match EnvFilter::builder().parse(filter) {
        Ok(_) => Ok(filter.to_owned()),
        Err(_) => Err("must be a filter such as info or keepsake=debug,info".to_owned()),
    }
}
