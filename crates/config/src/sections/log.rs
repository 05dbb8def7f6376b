//! `[log]`

use toml::Value;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

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
    let directives: Vec<_> = text(value)?.split(',').map(str::trim).collect();
    // `EnvFilter` takes a misspelt level for the name of a crate, all of whose messages are logged.
    let is_clear = |directive: &&str| {
        let is_target = directive.contains(['=', '[', ':']) || directive.starts_with("keepsake");
        is_target || directive.parse::<LevelFilter>().is_ok()
    };
    let filter = directives.join(",");
    match EnvFilter::builder().parse(&filter) {
        Ok(_) if directives.iter().all(is_clear) => Ok(filter),
        _ => Err("must be a filter such as info or keepsake=debug,info: the levels are off, error, warn, info, debug \
            and trace; the name of another crate has one, as in hyper=debug"
            .to_owned()),
    }
}
