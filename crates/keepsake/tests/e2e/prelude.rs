//! What most tests use: the kit of servers, clients and commands, and JSON.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use bytes::Bytes;
pub(crate) use futures::future::join_all;
pub(crate) use keepsake_core::{BlobKey, ContentHash, StoreId, TenantId, Timestamp, VersionId};
pub(crate) use keepsake_engine::jobs::{
    DeleteTenants, DrainDeletions, Erase, Prune, PurgeStores, RunRequest, SweepBlobs,
};
pub(crate) use keepsake_index::Scope;
pub(crate) use keepsake_testkit::ServerCommand;
pub(crate) use keepsake_testkit::keepsake_server::signal;
pub(crate) use reqwest::Method;
pub(crate) use serde_json::{Value, json};
pub(crate) use tempfile::TempDir;
pub(crate) use tokio::io::{AsyncReadExt, AsyncWriteExt};
pub(crate) use tokio::net::TcpStream;
pub(crate) use tokio::process::Command;
pub(crate) use uuid::Uuid;

pub(crate) use crate::api::sessions::{attached, attaching, open};
pub(crate) use crate::api::support::{
    Place, SESSIONS, STORES, Store, block, delete, denied, holds, invalid, micros, new_session, not_found,
    parted, patch, path_conflict, post_text, post_with, refused, refused_for, secret, sha256, shows, strings,
    text,
};
pub(crate) use crate::operator::Operator;
pub(crate) use crate::support::client::{ok, page_of, send, tool_calls, try_send};
pub(crate) use crate::support::command::{
    Run, borrowed, keepsake, keepsake_in_terminal, keepsake_reading, keepsake_with, start_keepsake, words,
};
pub(crate) use crate::support::deployment::{FREE_RATES, ServerConfig};
pub(crate) use crate::support::server::{started, started_with};
pub(crate) use crate::support::sessions::{open_session, view_in};
pub(crate) use crate::support::{
    Answer, Client, Deployment, Pair, Server, Tenant, binary, eventually, now_secs, on_sqlite, repository,
    says, script, secrets, soon,
};
