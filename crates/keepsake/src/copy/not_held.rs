//! What the target cannot hold, found before anything is written.

use keepsake_archive::format::VersionLine;
use keepsake_archive::report::Class;
use keepsake_config::cli::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::listing::{Listed, StoreListing};
use super::plan::Plan;
use super::server::StoreObject;
use crate::failures::failure_of;
use crate::output::{bytes, counted};

/// The most bytes of a memory that the official API takes.
const OFFICIAL_BYTES: u64 = 102_400;
/// Maximum number of versions that are counted; a longer history is reported as "more than 2,000".
const MAX_COUNTED_VERSIONS: usize = 2_000;

/// A thing that the copy does not have.
#[derive(Debug)]
pub(super) struct NotHeld {
    /// `memory`, `size`, `quota`, `expiry`, `history` or `store`.
    pub(super) kind: &'static str,
    pub(super) path: Option<String>,
    pub(super) reason: String,
}

impl NotHeld {
    fn new(kind: &'static str, reason: impl Into<String>) -> Self {
        Self { kind, path: None, reason: reason.into() }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"kind": self.kind, "path": self.path, "reason": self.reason})
    }
}

/// The limits of a store; only a Keepsake server reports them.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Limits {
    bytes_per_memory: Option<u64>,
    memories_per_store: Option<u64>,
    bytes_per_store: Option<u64>,
}

impl Limits {
    /// The limits of a store; none if the credential may not read them.
    pub(super) async fn read(target: &StoreListing) -> Result<Self> {
        #[derive(Deserialize)]
        struct Usage {
            limits: Limits,
        }
        let usage: Option<Usage> =
            target.store.usage("the limits of the target cannot be read", None).await?;
        Ok(usage.map(|usage| usage.limits).unwrap_or_default())
    }

    /// Why no memory of this size can be written.
    pub(super) fn refuse(&self, size_bytes: u64) -> Option<String> {
        let most = self.bytes_per_memory.filter(|most| *most > 0 && size_bytes > *most)?;
        Some(format!("has {}, and the target takes {}", bytes(size_bytes), bytes(most)))
    }
}

/// The memories that the target refuses or may refuse, and the quotas that the copy exceeds.
pub(super) fn of_plan(plan: &Plan, limits: &Limits) -> Vec<NotHeld> {
    let refused = plan.report.entries().iter().filter(|entry| entry.outcome.is_refused(Class::Rule));
    let mut found: Vec<_> = refused
        .map(|entry| NotHeld {
            kind: "memory",
            path: Some(entry.path.clone()),
            reason: entry.reason().unwrap_or_default().to_owned(),
        })
        .collect();
    if limits.bytes_per_memory.is_none() {
        let large = plan.steps.iter().filter(|step| step.item.size_bytes > OFFICIAL_BYTES);
        found.extend(large.map(|step| NotHeld {
            kind: "size",
            path: Some(step.item.path.as_str().to_owned()),
            reason: format!(
                "has {}: the target may refuse more than {}",
                bytes(step.item.size_bytes),
                bytes(OFFICIAL_BYTES)
            ),
        }));
    }
    let created = plan.steps.iter().filter(|step| step.replaces.is_none());
    let (count, size) =
        created.fold((0_u64, 0_u64), |(count, size), step| (count + 1, size + step.item.size_bytes));
    let all = count + plan.target_count.saturating_sub(plan.deletions.len()) as u64;
    if let Some(most) = limits.memories_per_store.filter(|most| *most > 0 && all > *most) {
        found.push(NotHeld::new("quota", format!("{all} memories: the target store takes {most}")));
    }
    if let Some(most) = limits.bytes_per_store.filter(|most| *most > 0 && size > *most) {
        let reason = format!("{} of memories: the target store takes {}", bytes(size), bytes(most));
        found.push(NotHeld::new("quota", reason));
    }
    found
}

/// The pins and expiry times of the source, which other servers do not have.
pub(super) fn expiry(source: &Listed) -> Vec<NotHeld> {
    let pins = source.values().filter(|memory| memory.is_pinned()).count();
    let times = source.values().filter(|memory| memory.expires_at().is_some()).count();
    let told = [(pins, "pin"), (times, "expiry time")].into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| NotHeld::new("expiry", counted(count as u64, what))).collect()
}

/// The settings of the source that a copy does not have.
pub(super) fn of_store(store: &StoreObject) -> Vec<NotHeld> {
    let policy = store.sensitive_data_policy.as_deref().filter(|policy| *policy != "off");
    let told = [
        store.archived_at.as_ref().map(|_| "the source is archived; the copy is not".to_owned()),
        store.expires_unused_after.map(|_| "the period after which unused memories expire".to_owned()),
        policy.map(|policy| format!("the policy `{policy}` for sensitive data")),
        store.search_mode.as_ref().map(|mode| format!("the search mode `{mode}`")),
    ];
    told.into_iter().flatten().map(|reason| NotHeld::new("store", reason)).collect()
}

/// The memories that are settings of the source.
pub(super) fn settings() -> NotHeld {
    NotHeld::new("store", "the settings below `/.keepsake/`")
}

/// The history of the source: its earlier versions, and the redactions among them.
pub(super) async fn history(source: &StoreListing) -> Result<Vec<NotHeld>> {
    let path = source.store.path(&["memory_versions"]);
    let mut pages = source.store.client.pages(&path, &[("view", Some("basic"))]);
    let versions: Vec<VersionLine> = match pages.take(MAX_COUNTED_VERSIONS + 1).await {
        Ok(versions) => versions,
        Err(error) if error.status().is_some_and(|status| status.is_client_error()) => {
            return Ok(vec![NotHeld::new("history", format!("the history cannot be read: {error}"))]);
        }
        Err(error) => return Err(failure_of("the versions of the source cannot be listed")(error)),
    };
    let later = versions.iter().filter(|version| version.operation != "created").count();
    let redacted = versions.iter().filter(|version| version.redacted_at.is_some()).count();
    if later + redacted == 0 && versions.len() <= MAX_COUNTED_VERSIONS {
        return Ok(Vec::new());
    }
    let of_how_many = if versions.len() > MAX_COUNTED_VERSIONS { "more than 2,000" } else { "its" };
    Ok(vec![NotHeld::new(
        "history",
        format!(
            "{of_how_many} versions, with {} and {}: the copy's history begins now",
            counted(later as u64, "later change"),
            counted(redacted as u64, "redaction")
        ),
    )])
}
