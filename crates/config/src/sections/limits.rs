//! `[limits]`: the keys are the fields of [`Limits`].

use keepsake_core::Limits;
use serde_json::{Map, Value};

use crate::checks::at_least;
use crate::reader::Reader;

pub(super) fn read(reader: &mut Reader) -> Limits {
    let Ok(Value::Object(defaults)) = serde_json::to_value(Limits::default()) else {
        return Limits::default();
    };
    let limits: Map<_, _> = defaults
        .into_iter()
        .map(|(name, default)| {
            let default = default.as_i64().unwrap_or_default();
            let limit: u64 = reader.get(&format!("limits.{name}"), default, at_least(0));
            (name, limit.into())
        })
        .collect();
    serde_json::from_value(limits.into()).unwrap_or_default()
}
