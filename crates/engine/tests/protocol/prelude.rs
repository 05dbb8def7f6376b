//! What most tests use: the engine of the tests, times, and JSON.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::time::Duration;

pub(crate) use keepsake_core::{BlobKey, ContentHash, MemoryPath, ObjectKind, Timestamp};
pub(crate) use keepsake_engine::jobs::{DrainDeletions, ExpireVersions, PurgeStores};
pub(crate) use keepsake_engine::{
    Clock, EngineError, MemoryEdit, MemoryQuery, NewMemory, PageRequest, Precondition, SearchQuery,
    ShownMemory, StoreDraft, StoreEdit, VersionQuery, View,
};
pub(crate) use keepsake_index::{Auditor, Scope};
pub(crate) use keepsake_testkit::{Seed, blob_key};
pub(crate) use serde_json::{Value, json};
pub(crate) use tokio::sync::Notify;
pub(crate) use uuid::Uuid;

pub(crate) use crate::test_engine::{
    DAY, HOUR, MINUTE, SECOND, TestEngine, create, delete, edit_of, fails, hanging_after, insert, new_memory,
    once, pin, rename, short_of, tool_call, unavailable, view,
};
