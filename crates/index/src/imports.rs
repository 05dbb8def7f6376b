//! Imports of histories: versions with the times and authors of another store.

use std::borrow::Cow;

use keepsake_core::{ObjectKind, Refused, StoreId, TenantId, Timestamp};

use crate::commit::{Commit, CommitOutcome};
use crate::database::{Database, Role, commit_changes};
use crate::model::{AuditAction, AuditObject, AuditedAction};
use crate::removal::redact_imported;
use crate::{ChangeError, audit};

/// Takes the store's lock and moves the import's position from `$3` to `$4`. Changes
/// nothing if the store has versions that were not imported, or other imported ones.
const ADVANCE: &str = "UPDATE store SET imported_seq = $4 WHERE tenant_id = $1 AND store_id = $2 \
    AND seq = $3 AND imported_seq = $3 AND deleted_at IS NULL AND archived_at IS NULL RETURNING last_version_at";

const STATE: &str = "SELECT seq, imported_seq, archived_at IS NOT NULL AS is_archived FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

#[derive(Debug, Clone)]
pub struct Imports(pub(crate) Database);

/// The next versions of a history, oldest first.
#[derive(Debug, Clone)]
pub struct HistoryPart {
    pub store_id: StoreId,
    /// The number of versions that were imported before.
    pub position: i64,
    /// Each commit has its own time and author.
    pub commits: Vec<Commit>,
    /// Versions to redact after the commits, by their places in the history, which
    /// begin at 1, with the time and the author of each redaction.
    pub redactions: Vec<(i64, AuditedAction)>,
    /// The time and author of the import.
    pub audited: AuditedAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    Imported,
    /// Nothing was written: the import has another position.
    OtherPosition {
        /// The number of imported versions; `None`: the store also has others.
        imported: Option<i64>,
    },
    /// Nothing was written: the commit at this index had this outcome.
    NotCommitted(usize, CommitOutcome),
    /// Nothing was written: the redaction at this index names no version, or names the
    /// version with the final content of a live memory.
    RedactionRefused(usize),
}

impl HistoryPart {
    fn versions(&self) -> i64 {
        let changes = self.commits.iter().map(|commit| commit.changes.len());
        i64::try_from(changes.sum::<usize>()).unwrap_or(i64::MAX)
    }
}

impl Imports {
    /// Writes a part of a history as a whole or not at all. The first part gets an audit
    /// entry.
    pub async fn write(&self, tenant_id: TenantId, part: &HistoryPart) -> Result<ImportOutcome, ChangeError> {
        let store_id = part.store_id;
        let mut tx = self.0.write("import", Role::Tenant(tenant_id)).await?;
        let query = tx.query(ADVANCE).bind((tenant_id, store_id));
        let query = query.bind((part.position, part.position + part.versions()));
        let Some(mut last) = query.optional_scalar::<Timestamp>().await? else {
            let query = tx.query(STATE).bind((tenant_id, store_id));
            return match query.optional::<(i64, i64, bool)>().await? {
                None => Err(ChangeError::NotFound(ObjectKind::Store)),
                Some((.., true)) => Err(Refused::Archived.into()),
                Some((seq, imported, false)) => {
                    Ok(ImportOutcome::OtherPosition { imported: (seq == imported).then_some(imported) })
                }
            };
        };
        if part.position == 0 {
            let (action, object) = (AuditAction::StoreImported, AuditObject::new(store_id.uuid()));
            audit::record_within_quota(&mut tx, tenant_id, &part.audited, action, object).await?;
        }
        for (place, commit) in part.commits.iter().enumerate() {
            // The time of an imported version may be long before that of the version before
            // it. A commit would take such a difference for a clock that was ahead, and let
            // the times of the versions decrease.
            let mut commit = Cow::Borrowed(commit);
            if commit.now < last {
                commit.to_mut().now = last;
            }
            last = commit.now;
            match commit_changes(&mut tx, tenant_id, &commit).await? {
                CommitOutcome::Committed { .. } => {}
                CommitOutcome::NoStore => return Err(ChangeError::NotFound(ObjectKind::Store)),
                outcome => return Ok(ImportOutcome::NotCommitted(place, outcome)),
            }
        }
        for (place, (seq, audited)) in part.redactions.iter().enumerate() {
            match redact_imported(&mut tx, (tenant_id, store_id), *seq, audited).await {
                Ok(_) => {}
                Err(ChangeError::Index(error)) => return Err(error.into()),
                Err(_) => return Ok(ImportOutcome::RedactionRefused(place)),
            }
        }
        tx.commit().await?;
        Ok(ImportOutcome::Imported)
    }
}
