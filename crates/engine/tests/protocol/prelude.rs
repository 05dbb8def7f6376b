//! What the tests use: the engine of the tests, times, and JSON.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::future::ready;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::time::Duration;

pub(crate) use bytes::Bytes;
pub(crate) use futures::future::join_all;
pub(crate) use keepsake_core::{
    Actor, BlobKey, Content, ContentHash, ErasureId, MemoryPath, MemoryUndoId, ObjectKind, SearchMode,
    StoreId, Surface, TenantId, Timestamp, VersionId,
};
pub(crate) use keepsake_engine::jobs::*;
pub(crate) use keepsake_engine::{
    Audience, BatchStatus, BlobMove, Clock, DailyUseQuery, EmbeddingError, EngineError, ErasureRequest,
    ExpiresAt, ExportExtent, ExportForm, FairShares, ImportOptions, ManualClock, MeaningReason, MemoryEdit,
    MemoryQuery, MemoryUndo, MoveError, MoveFence, MoveReport, NamedMoment, NewMemory, NewToken, PageRequest,
    Precondition, PromptOptions, ReaderList, ReaderQuery, RequestShares, Rotation, SIGN_IN_LIFE, SearchHit,
    SearchMeaning, SearchPage, SearchQuery, SessionDraft, SessionWithToken, Shared, ShownItem, ShownMemory,
    ShownPastItem, StoreDraft, StoreEdit, StoreFork, SystemClock, ToolCall, UndoCounts, UndoRequest,
    UndoSkipReason, UndoStatus, Verification, VersionQuery, View, holding,
};
pub(crate) use keepsake_index::{
    Access, AuditFilter, AuditedAction, Auditor, Commit, CommitChange, CommitOutcome, DeletionReason,
    DeletionState, Erasure, ErasureState, EventFilter, FORK_HELD_FOR, FlushedBatch, ForkCounts, Index,
    LIVES_FOR, MemoryTarget, Moment, NewContent, Operation, Origin, PointError, ProposedChange, ReadSpan,
    ReadVersions, RecordedReads, Scope, SessionEvent, SqliteIndex, StoreOrigin, StoreOriginStatus,
    StoredContent, TenantChange, TenantDeletion, VersionCounts, VersionReader,
};
pub(crate) use keepsake_testkit::{HookedBlobs, IssuerKey, Seed, blob_key, fresh_s3};
pub(crate) use serde_json::{Value, json};
pub(crate) use tokio::sync::Notify;
pub(crate) use uuid::Uuid;

pub(crate) use crate::test_engine::{
    DAY, HOUR, MINUTE, SECOND, TestEngine, create, delete, engine_on, fails, hanging_after, insert,
    new_content, new_memory, new_path, once, pin, rename, short_of, tool_call, unavailable, view,
};
