//! Requests to take back changes, and the checks of their fields.

use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, ApiKeyId, DirPath, SessionId, Timestamp, optional_object, schemas};
use keepsake_index::{Idempotency, UndoSelection};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::past::NamedMoment;
use crate::request_fields::{check_name, invalid, parse_prefix, parse_time};
use crate::{EngineError, Principal};

/// The changes to take back: the changes that all given filters select. At least one is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UndoChanges)]
pub struct UndoRequest {
    /// Only changes of this session.
    pub session_id: Option<SessionId>,
    /// Only changes with this API key.
    pub api_key_id: Option<ApiKeyId>,
    /// Only changes of this person.
    #[schema(value_type = Option<schemas::ForeignId>)]
    pub user_id: Option<String>,
    /// Only changes of this workload.
    #[schema(value_type = Option<schemas::ForeignId>)]
    pub service_account_id: Option<String>,
    /// Only changes in this period.
    #[serde(default, deserialize_with = "optional_object")]
    pub created_at: Option<CreatedAt>,
    /// Only changes of memories that were below this directory before or after the change.
    #[schema(value_type = Option<DirPath>)]
    pub path_prefix: Option<String>,
    /// Only changes after the one with this sequence number.
    pub after_seq: Option<u64>,
    /// Only changes up to the one with this sequence number: the `seq` of a plan. A memory that was changed after
    /// it is skipped, also with `overwrite`.
    pub until_seq: Option<u64>,
    /// Whether later changes of the memories are taken back, too; false if omitted.
    pub overwrite: Option<bool>,
    /// Whether to answer only the plan, without changing anything; false if omitted.
    pub dry_run: Option<bool>,
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
}

/// A period. Both times belong to it; either may be omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatedAt {
    #[schema(value_type = Option<Timestamp>)]
    pub gte: Option<String>,
    #[schema(value_type = Option<Timestamp>)]
    pub lte: Option<String>,
}

/// The point to which a store goes back: `at` or `at_seq`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RestoreMemoryStore)]
pub struct StoreRestoration {
    /// As the store was at this time.
    #[schema(value_type = Option<Timestamp>)]
    pub at: Option<String>,
    /// As the store was after the change with this sequence number; 0: empty.
    pub at_seq: Option<u64>,
    /// Only memories that were below this directory then or since.
    #[schema(value_type = Option<DirPath>)]
    pub path_prefix: Option<String>,
    /// The `seq` of a plan: a memory that was changed after this change is skipped.
    pub until_seq: Option<u64>,
    /// Whether to answer only the plan, without changing anything; false if omitted.
    pub dry_run: Option<bool>,
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
}

impl UndoRequest {
    pub(super) fn selection(&self) -> Result<UndoSelection, EngineError> {
        let selection = UndoSelection {
            actor: self.actor()?,
            created_from: self.time("created_at.gte", |range| range.gte.as_deref())?,
            created_to: self.time("created_at.lte", |range| range.lte.as_deref())?,
            after_seq: self.after_seq.map_or(0, seq_of),
            until_seq: self.until_seq.map(seq_of),
            below: self.path_prefix.as_deref().map(parse_prefix).transpose()?,
            takes_whole_memories: false,
            overwrites: self.overwrite.unwrap_or_default(),
        };
        let is_unlimited = UndoSelection { overwrites: false, until_seq: None, ..selection.clone() }
            == UndoSelection::default();
        if is_unlimited && self.after_seq.is_none() {
            return invalid(
                "session_id",
                "or another filter is required: `api_key_id`, `user_id`, `service_account_id`, `created_at`, \
                 `path_prefix` or `after_seq`",
            );
        }
        Ok(selection)
    }

    fn actor(&self) -> Result<Option<(ActorKind, String)>, EngineError> {
        let named = [
            ("session_id", ActorKind::Session, self.session_id.map(|id| id.to_string())),
            ("api_key_id", ActorKind::ApiKey, self.api_key_id.map(|id| id.to_string())),
            ("user_id", ActorKind::User, self.user_id.clone()),
            ("service_account_id", ActorKind::ServiceAccount, self.service_account_id.clone()),
        ];
        let mut actor = None;
        for (field, kind, id) in named {
            let Some(id) = id else {
                continue;
            };
            check_name(field, &id)?;
            if actor.replace((kind, id)).is_some() {
                return invalid(field, "must not come with another author: a change has one author");
            }
        }
        Ok(actor)
    }

    fn time(
        &self,
        field: &'static str,
        of: impl Fn(&CreatedAt) -> Option<&str>,
    ) -> Result<Option<Timestamp>, EngineError> {
        self.created_at.as_ref().and_then(of).map(|text| parse_time(field, text)).transpose()
    }
}

impl StoreRestoration {
    pub(super) fn moment(&self) -> Result<NamedMoment, EngineError> {
        let at = self.at.as_deref().map(|text| parse_time("at", text)).transpose()?;
        let moment = NamedMoment::parse(("at", at), ("at_seq", self.at_seq))?;
        moment.map_or_else(|| invalid("at", "or `at_seq` is required"), Ok)
    }

    pub(super) fn below(&self) -> Result<Option<DirPath>, EngineError> {
        self.path_prefix.as_deref().map(parse_prefix).transpose()
    }
}

/// Whether the selection has only changes of the caller.
pub(super) fn is_own(principal: &Principal, selection: &UndoSelection) -> bool {
    let (Some(actor), Some((kind, id))) = (principal.actor(), &selection.actor) else {
        return false;
    };
    !selection.overwrites && actor.kind() == kind.name() && actor.id() == *id
}

/// The refusal of a selection that may have changes of others; `None`: the caller makes no changes.
pub(super) fn only_own(principal: &Principal) -> Option<EngineError> {
    let actor = principal.actor()?;
    let field = match actor {
        Actor::ApiKey(_) => "api_key_id",
        Actor::Session(_) => "session_id",
        Actor::User(_) => "user_id",
        Actor::ServiceAccount(_) => "service_account_id",
        Actor::Imported(..) => return None,
    };
    Some(EngineError::OnlyOwnChanges { field, id: actor.id() })
}

pub(super) fn seq_of(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
