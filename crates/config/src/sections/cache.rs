//! `[cache]`

use crate::checks::at_least;
use crate::reader::Reader;

/// Memory of the caches, for all tenants together.
#[derive(Debug, Clone)]
pub struct CacheSettings {
    pub blob_bytes: u64,
    pub search_bytes: u64,
}

impl CacheSettings {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            blob_bytes: reader.get("cache.blob_bytes", 256 << 20, at_least(0)),
            search_bytes: reader.get("cache.search_bytes", 256 << 20, at_least(0)),
        }
    }
}
