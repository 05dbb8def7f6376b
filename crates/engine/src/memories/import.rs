//! The import of a history into an empty store.

use std::sync::Arc;

use keepsake_core::actor::VersionActor;
use keepsake_core::{
    Actor, ContentHash, MemoryId, MemoryPath, ObjectKind, StoreId, Timestamp, objects, optional_object,
    schemas,
};
use keepsake_index::{AuditedAction, Auditor, Operation, Scope, Version, VersionListing};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Builder;

use super::Memories;
use super::decisions::with_conflicting_memory;
use super::requests::parse_content;
use crate::context::Context;
use crate::request_fields::{check_name, parse_path, parse_time};
use crate::write::{ImportRefusal, PastPart, PastVersion};
use crate::{EngineError, Principal};

pub const MAX_VERSIONS: usize = 500;
/// More versions than any store has.
const MAX_POSITION: i64 = 1 << 53;

/// A part of a history.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = History)]
pub struct HistoryPart {
    /// The number of versions that the memory store has, all of them imported; 0 at first.
    pub position: u64,
    /// The next versions, oldest first; at most 500, together with the redactions.
    #[serde(default, deserialize_with = "objects")]
    #[schema(max_items = 500)]
    pub versions: Vec<ImportedVersion>,
    /// Redactions of imported versions.
    #[serde(default, deserialize_with = "objects")]
    #[schema(max_items = 500)]
    pub redactions: Vec<ImportedRedaction>,
}

/// A version of another memory store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HistoryVersion)]
pub struct ImportedVersion {
    /// The id that the memory has there.
    #[schema(value_type = schemas::ForeignId)]
    pub memory_id: String,
    /// What the version did.
    #[schema(value_type = Operation)]
    pub operation: String,
    /// The memory's path after the version; may be omitted for a deletion.
    #[schema(value_type = Option<MemoryPath>)]
    pub path: Option<String>,
    /// The memory's content after the version; omitted for a deletion.
    #[schema(value_type = Option<schemas::Content>)]
    pub content: Option<String>,
    /// When it was made; not in the future.
    #[schema(value_type = Timestamp)]
    pub created_at: String,
    /// Who made it; null if unknown.
    #[serde(default, deserialize_with = "optional_object")]
    pub created_by: Option<VersionActor>,
}

/// A redaction in another memory store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HistoryRedaction)]
pub struct ImportedRedaction {
    /// The version's place in the history; the first version has 1.
    pub version: u64,
    /// When it was redacted; not in the future.
    #[schema(value_type = Timestamp)]
    pub redacted_at: String,
    /// Who redacted it; null if unknown.
    #[serde(default, deserialize_with = "optional_object")]
    pub redacted_by: Option<VersionActor>,
}

impl Memories {
    /// Imports a part of a history into a store whose versions were all imported, and
    /// returns the number of imported versions. A part at another position is a conflict;
    /// the last imported part may be sent again. After a failure of the index the part
    /// may have been imported.
    #[tracing::instrument(name = "engine.import", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn import(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        part: HistoryPart,
    ) -> Result<u64, EngineError> {
        principal.require_outside_session(Scope::StoresAdmin, store_id)?;
        let imported = part.position.saturating_add(part.versions.len() as u64);
        let part = parse(&self.context, principal, store_id, part)?;
        let (memories, owner) = (self.clone(), Arc::clone(principal));
        self.context
            .run_to_end(async move {
                let write = memories.writer.write(&owner, store_id, None);
                let refused = match write.import(&part).await? {
                    Ok(()) => return Ok(imported),
                    Err(refused) => refused,
                };
                let (version, refusal) = match refused {
                    ImportRefusal::OtherPosition(None) => {
                        return Err(EngineError::Conflict(
                            "the memory store has versions that were not imported: a history is imported \
                             into an empty memory store",
                        ));
                    }
                    ImportRefusal::OtherPosition(Some(position)) => {
                        if memories.has_imported(&owner, store_id, &part, position).await? {
                            return Ok(imported);
                        }
                        return Err(EngineError::Conflict(
                            "`position` is not the number of versions that the memory store has",
                        ));
                    }
                    ImportRefusal::RedactionRefused(place) => {
                        return Err(of_redaction(
                            place,
                            "names no version, or one whose content a memory has now",
                        ));
                    }
                    ImportRefusal::DeletesNothing(place) => {
                        return Err(of_version(place, "operation", "deletes a memory that does not exist"));
                    }
                    ImportRefusal::Refused(version, refusal) => (version, refusal),
                };
                let refusal = with_conflicting_memory(&write, refusal).await?;
                Err(EngineError::OfOperation { operation: version, refusal: Arc::new(refusal.into()) })
            })
            .await
    }

    /// Whether a part is the last one that was imported, so that this call repeats it.
    async fn has_imported(
        &self,
        principal: &Principal,
        store_id: StoreId,
        part: &PastPart,
        position: i64,
    ) -> Result<bool, EngineError> {
        let versions = part.versions.len();
        if i64::try_from(versions).ok() != Some(position - part.position) {
            return Ok(false);
        }
        let newest = VersionListing {
            limit: u32::try_from(versions).unwrap_or(u32::MAX),
            ..VersionListing::default()
        };
        let index = &self.context.index.versions;
        let page = index.list(principal.tenant_id, store_id, &newest).await?;
        let (_, listed) = page.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        let is_same = |(sent, has): (&PastVersion, &Version)| {
            let content = sent.state.as_ref().map(|(_, content)| content.hash());
            let is_redacted = has.redacted_at.is_some();
            sent.memory_id == has.memory_id
                && (is_redacted || content == has.content.map(|content| content.sha256))
        };
        let mut pairs = part.versions.iter().rev().zip(&listed);
        Ok(listed.len() == versions && pairs.all(is_same))
    }
}

fn parse(
    context: &Context,
    principal: &Principal,
    store_id: StoreId,
    part: HistoryPart,
) -> Result<PastPart, EngineError> {
    let now = context.now();
    if part.versions.len() + part.redactions.len() > MAX_VERSIONS {
        return Err(EngineError::invalid(
            "versions",
            format!("must be at most {MAX_VERSIONS}, together with `redactions`"),
        ));
    }
    let position = i64::try_from(part.position).ok();
    let position = position.filter(|position| *position <= MAX_POSITION);
    let position = position.ok_or_else(|| {
        EngineError::invalid("position", "must be the number of versions that the memory store has")
    })?;
    let versions = part.versions.into_iter().enumerate().map(|(place, version)| {
        parse_version(principal, store_id, version, now)
            .map_err(|error| EngineError::OfOperation { operation: place, refusal: Arc::new(error) })
    });
    let redactions = part.redactions.into_iter().enumerate().map(|(place, redaction)| {
        let redacted_at = parse_time("redacted_at", &redaction.redacted_at)?;
        if redacted_at > now {
            return Err(of_redaction(place, "is in the future"));
        }
        let version = i64::try_from(redaction.version);
        let version = version.map_err(|_| of_redaction(place, "names no version"))?;
        let by = actor_of("redacted_by", redaction.redacted_by)?;
        let by = by.map_or(Auditor::Operator, Auditor::Credential);
        Ok((version, AuditedAction { at: redacted_at, ..context.audited(by) }))
    });
    Ok(PastPart {
        position,
        versions: versions.collect::<Result<_, _>>()?,
        redactions: redactions.collect::<Result<_, _>>()?,
    })
}

fn parse_version(
    principal: &Principal,
    store_id: StoreId,
    version: ImportedVersion,
    now: Timestamp,
) -> Result<PastVersion, EngineError> {
    let operation = Operation::parse(&version.operation)
        .ok_or_else(|| EngineError::invalid("operation", "must be `created`, `modified` or `deleted`"))?;
    let created_at = parse_time("created_at", &version.created_at)?;
    if created_at > now {
        return Err(EngineError::invalid("created_at", "must not be in the future"));
    }
    check_name("memory_id", &version.memory_id)?;
    let state = match (operation, version.path, version.content) {
        (Operation::Deleted, _, None) => None,
        (Operation::Deleted, _, Some(_)) => {
            return Err(EngineError::invalid("content", "must be left out for a deletion"));
        }
        (_, Some(path), Some(content)) => Some((parse_path(&path)?, parse_content(principal, content)?)),
        (_, None, _) => return Err(EngineError::invalid("path", "is missing")),
        (_, _, None) => return Err(EngineError::invalid("content", "is missing")),
    };
    Ok(PastVersion {
        memory_id: memory_id_of(store_id, &version.memory_id),
        state,
        at: created_at,
        by: actor_of("created_by", version.created_by)?,
    })
}

fn actor_of(field: &'static str, by: Option<VersionActor>) -> Result<Option<Actor>, EngineError> {
    let Some((kind, id)) = by.map(VersionActor::into_parts) else {
        return Ok(None);
    };
    check_name(field, &id)?;
    Ok(Some(Actor::Imported(kind, id)))
}

/// The id of an imported memory in its new store. It depends only on the arguments, so that each call that
/// imports a part of the history gets the same id.
fn memory_id_of(store_id: StoreId, imported_id: &str) -> MemoryId {
    let named = [store_id.uuid().as_bytes(), imported_id.as_bytes()].concat();
    let hash = ContentHash::of(&named);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    MemoryId::from_uuid(Builder::from_custom_bytes(bytes).into_uuid())
}

fn of_version(place: usize, field: &'static str, rule: &str) -> EngineError {
    EngineError::OfOperation { operation: place, refusal: Arc::new(EngineError::invalid(field, rule)) }
}

fn of_redaction(place: usize, rule: &str) -> EngineError {
    EngineError::invalid("redactions", format!("{place} {rule}"))
}
