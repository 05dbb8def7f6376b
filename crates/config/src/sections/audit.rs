//! `[audit]`

use std::time::Duration;

use crate::checks::days;
use crate::reader::Reader;

#[derive(Debug, Clone)]
pub struct AuditSettings {
    pub retention: Duration,
}

impl AuditSettings {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self { retention: reader.get("audit.retention_days", 400, days) }
    }
}
