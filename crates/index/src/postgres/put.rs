//! Commits of new content at one path, the most frequent kind: one call of the
//! function `put_content`.

use keepsake_core::{Actor, DirPath, SensitiveDataPolicy, TenantId, Timestamp};

use super::PostgresIndex;
use crate::IndexError;
use crate::commit::{Change, Commit, CommitOutcome, CommitPlan, HeadChange};
use crate::model::Expiry;
use crate::numbers::unsigned;

/// The change of a commit that only writes new content at one path, for a new
/// memory or for one that keeps its path.
fn put_of(commit: &Commit) -> Option<(&Change, &HeadChange)> {
    let [change] = commit.changes.as_slice() else {
        return None;
    };
    let after = change.after.as_ref()?;
    let is_new_content = after.blob_id == change.version_id;
    let before = change.before.as_ref();
    let moves = before.is_some_and(|before| before.path != after.path);
    let is_more = commit.guard.is_some() || commit.purge_epoch.is_some() || change.revives.is_some();
    (is_new_content && !moves && !is_more).then_some((change, after))
}

impl PostgresIndex {
    /// Executes a commit that is only a put. Returns `None` if nothing except the
    /// store's `last_version_at` was written; the general commit must then run, which
    /// also determines the reason of a refusal.
    pub(super) async fn put(
        &self,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<Option<CommitOutcome>, IndexError> {
        let Some((change, after)) = put_of(commit) else {
            return Ok(None);
        };
        let plan = CommitPlan::of(&commit.changes);
        let before = change.before.as_ref();
        let parent = after.path.parent();
        let visible_children = plan.directories.get(&parent).map(|delta| delta.visible_children);
        let nearest_first: Vec<&str> = plan.directories.keys().rev().map(DirPath::as_str).collect();
        let search = after.search.as_ref();
        let idempotency = commit.idempotency.as_ref();
        let made: Option<Vec<Option<i64>>> = sqlx::query_scalar(
            "SELECT put_content($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
             $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)",
        )
        .bind(tenant_id.uuid())
        .bind(commit.store_id.uuid())
        .bind(commit.now.as_micros())
        .bind(commit.actor.as_ref().map(Actor::kind))
        .bind(commit.actor.as_ref().map(Actor::id))
        .bind(commit.replica)
        .bind(i64::try_from(commit.memory_limit).unwrap_or(i64::MAX))
        .bind(i64::try_from(commit.byte_limit).unwrap_or(i64::MAX))
        .bind(idempotency.map(|call| call.scope_sha256.as_slice()))
        .bind(idempotency.map(|call| call.request_sha256.as_slice()))
        .bind(commit.policy.map(SensitiveDataPolicy::name))
        .bind(change.memory_id.uuid())
        .bind(before.map(|before| before.version_id.uuid()))
        .bind(before.map(|before| before.seq))
        .bind(change.version_id.uuid())
        .bind(after.path.as_str())
        .bind(parent.as_str())
        .bind(after.path.name())
        .bind(i64::try_from(after.size_bytes).unwrap_or(i64::MAX))
        .bind(after.sha256.as_bytes().as_slice())
        .bind(after.first_line.as_deref())
        .bind(after.is_pinned)
        .bind(search.map(|row| i64::from(row.analyser)))
        .bind(search.map(|row| i64::from(row.length)))
        .bind(search.map(|row| row.terms.as_slice()))
        .bind(plan.count_delta)
        .bind(plan.byte_delta)
        .bind(visible_children.unwrap_or_default())
        .bind(nearest_first)
        .fetch_one(&self.app)
        .await?;
        let Some(made) = made else {
            return Ok(None);
        };
        let &[Some(seq), Some(purge_epoch), Some(at), unused_after, set_at] = made.as_slice() else {
            return Err(IndexError::Corrupt {
                table: "put_content",
                what: "an answer of another form",
            });
        };
        Ok(Some(CommitOutcome::Committed {
            seq,
            purge_epoch,
            at: Timestamp::from_micros(at),
            expiry: Expiry {
                unused_after_secs: unused_after.map(unsigned),
                set_at: set_at.map(Timestamp::from_micros),
            },
        }))
    }
}
