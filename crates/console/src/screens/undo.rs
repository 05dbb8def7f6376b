//! Changes taken back: chosen, shown as a plan, confirmed. Nothing is taken back before the plan
//! was shown, except for the one change that a message offers to take back.

use askama::Template;
use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, MemoryUndoId, StoreId, Timestamp, words};
use keepsake_engine::{
    CreatedAt, MemoryUndo, ShownVersion, StoreRestoration, UndoAction, UndoRequest, UndoSkipReason,
    UndoStatus, UndoneMemory, VersionQuery,
};
use keepsake_index::{Scope, Store};

use super::OfVersion;
use super::choices::{ChoiceField, Choices, actor_in_form, actor_of};
use super::memory::href_of;
use super::past::{moment_in_words, time_until_now, today};
use super::version::{last_version, newest_seq, version_href};
use crate::frame::{Done, Frame, Undo};
use crate::page::{PageResult, Refusal, done, done_as, page, see_other};
use crate::path::Path;
use crate::people::People;
use crate::request::{Caller, Fields, Form};
use crate::text::markup::{self, encoded};

/// Memories that a page shows.
const MAX_ROWS: usize = 50;
/// The fields that choose changes.
const FIELDS: [&str; 6] = ["actor", "from", "to", "path_prefix", "after_seq", "overwrite"];
/// The fields that choose the point to which a store goes back.
const POINT: [&str; 3] = ["at", "at_seq", "path_prefix"];

/// The colour of what becomes of a memory, and a comparison or the version with its content.
fn change_of(store_id: StoreId, undone: &UndoneMemory) -> (&'static str, Option<(String, &'static str)>) {
    let (from, to) = (undone.from_version_id, undone.to_version_id);
    match (undone.action, to) {
        (UndoAction::Restored | UndoAction::Renamed, Some(to)) => {
            let href = format!("/console/stores/{store_id}/compare?from={from}&to={to}");
            ("modified", Some((href, "Changes")))
        }
        (UndoAction::Recreated, Some(to)) => ("created", Some((version_href(store_id, to), "View"))),
        (UndoAction::Deleted, _) => ("deleted", Some((version_href(store_id, from), "View"))),
        _ => ("", None),
    }
}

const fn why(reason: UndoSkipReason) -> &'static str {
    match reason {
        UndoSkipReason::ChangedLater => "it was changed afterwards",
        UndoSkipReason::ContentGone => "its earlier content was redacted or is not kept",
        UndoSkipReason::PathTaken => "another memory is at its earlier path, at a parent of it, or below it",
        UndoSkipReason::SensitiveData => "the store does not accept the secrets in its earlier content",
        UndoSkipReason::TooLarge => "its earlier content is over the limit",
    }
}

/// The memories of an undo, and their number by what becomes of them.
struct Plan {
    rows: Vec<UndoneMemory>,
    /// The authors of later changes.
    people: People,
    counts: Vec<(&'static str, String)>,
    /// Memories that change.
    made: u64,
    /// Why the plan would be refused.
    refusal: Option<String>,
    not_shown: u64,
}

impl Plan {
    async fn of(caller: &Caller, undo: &MemoryUndo) -> Self {
        let counts = undo.counts;
        let changed = [
            ("Restored", counts.restored),
            ("Deleted", counts.deleted),
            ("Recreated", counts.recreated),
            ("Renamed", counts.renamed),
        ];
        let all = changed.iter().copied().chain([("Skipped", counts.skipped)]);
        let rows: Vec<_> = undo.data.iter().take(MAX_ROWS).cloned().collect();
        let later = rows.iter().filter_map(|undone| undone.changed_by.as_ref()?.created_by.as_ref());
        Self {
            people: People::look_up(caller, later.collect()).await,
            counts: all
                .filter(|(_, number)| *number > 0)
                .map(|(name, number)| (name, words::count(number)))
                .collect(),
            made: changed.iter().map(|(_, number)| number).sum(),
            refusal: undo.refusal.as_ref().map(|refusal| {
                let message = refusal.message.as_str();
                message.strip_prefix("nothing was changed: ").unwrap_or(message).to_owned()
            }),
            not_shown: undo.not_shown + (undo.data.len() - rows.len()) as u64,
            rows,
        }
    }
}

/// The form that carries a plan out.
struct Confirmation {
    action: String,
    /// The fields that chose the changes.
    fields: Vec<(&'static str, String)>,
    once: String,
    /// The newest change before the undo.
    before_seq: u64,
}

impl Confirmation {
    async fn new(
        caller: &Caller,
        store_id: StoreId,
        action: &str,
        names: &[&'static str],
    ) -> Result<Self, Refusal> {
        let chosen = names.iter().filter_map(|name| Some((*name, caller.query.filled(name)?.to_owned())));
        Ok(Self {
            action: format!("/console/stores/{store_id}/{action}"),
            fields: chosen.collect(),
            once: caller.engine.new_uuid().to_string(),
            before_seq: newest_seq(caller, store_id, VersionQuery::default()).await?,
        })
    }
}

/// The changes that the fields choose. `None`: they choose none.
fn request_of(fields: &Fields) -> Result<Option<UndoRequest>, Refusal> {
    let time = |at: Option<Timestamp>| at.map(Timestamp::to_rfc3339);
    let created_at = CreatedAt { gte: time(fields.time("from")?), lte: time(fields.until("to")?) };
    let mut request = UndoRequest {
        created_at: Some(created_at).filter(|range| *range != CreatedAt::default()),
        path_prefix: fields.directory("path_prefix"),
        after_seq: fields.number("after_seq")?,
        ..UndoRequest::default()
    };
    let Some((kind, id)) = fields.filled("actor").map(actor_of) else {
        let is_chosen = request != UndoRequest::default();
        request.overwrite = Some(fields.is_on("overwrite"));
        return Ok(is_chosen.then_some(request));
    };
    match kind {
        ActorKind::ApiKey => request.api_key_id = fields.id("actor")?,
        ActorKind::Session => request.session_id = fields.id("actor")?,
        ActorKind::User => request.user_id = Some(id),
        ActorKind::ServiceAccount => request.service_account_id = Some(id),
    }
    request.overwrite = Some(fields.is_on("overwrite"));
    Ok(Some(request))
}

#[derive(Template)]
#[template(path = "undo.html")]
struct UndoPage {
    frame: Frame,
    store: Store,
    query: Fields,
    may_write: bool,
    may_undo_others: bool,
    author: ChoiceField,
    plan: Option<Plan>,
    confirmation: Confirmation,
}

/// `GET /console/stores/{id}/undo`: the plan
pub(super) async fn choose(mut caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let may_undo_others = caller.may(Scope::StoresAdmin);
    let everybody = if may_undo_others { "everybody" } else { "you" };
    let mut authors =
        if may_undo_others { Choices::authors(&caller, Some(store_id)).await } else { Choices::own(&caller) };
    authors.add_people(caller.principal.actor());
    authors.resolve_author(&mut caller.query, "actor")?;
    caller.query.choose_period(caller.engine.now())?;
    let is_filtered = ["from", "to", "path_prefix", "after_seq"].iter().any(|name| caller.query.is_on(name));
    if !may_undo_others && is_filtered && !caller.query.is_on("actor") {
        let own = actor_in_form(caller.principal.actor());
        caller.query.set("actor", own);
    }
    let (engine, principal) = (&caller.engine, &caller.principal);
    let may_write = caller.may_write(&store) && caller.may(Scope::MemoryRead);
    let frame = caller.frame(format!("Undo changes of {}", store.name));
    // Read before the plan, so that the confirmation changes nothing that the plan does not show.
    let confirmation = Confirmation::new(&caller, store_id, "undo", &FIELDS).await?;
    let plan = match request_of(&caller.query)? {
        Some(request) if may_write => {
            let request = UndoRequest { dry_run: Some(true), ..request };
            let undo = engine.undos.undo(principal, store_id, request).await?;
            Some(Plan::of(&caller, &undo).await)
        }
        _ => None,
    };
    page(&UndoPage {
        frame,
        may_write,
        may_undo_others,
        author: authors.field("actor", "Author", everybody, &caller.query),
        plan,
        confirmation,
        store,
        query: caller.query,
    })
}

pub(super) async fn undo(Path(store_id): Path<StoreId>, form: Form) -> PageResult {
    let request = request_of(&form.fields)?;
    let request = request.ok_or_else(|| Refusal::invalid("`actor` or another filter must be given"))?;
    let until_seq = form.fields.number("before_seq")?;
    let request = UndoRequest { until_seq, idempotency: form.call()?, ..request };
    let undo = form.engine.undos.undo(&form.principal, store_id, request).await?;
    show_outcome(&form, store_id, &undo).await
}

#[derive(Template)]
#[template(path = "restore.html")]
struct RestorePage {
    frame: Frame,
    store: Store,
    /// The point in words. `None`: none is chosen yet.
    when: Option<String>,
    query: Fields,
    plan: Option<Plan>,
    confirmation: Confirmation,
}

fn restoration_of(caller: &Caller, fields: &Fields) -> Result<StoreRestoration, Refusal> {
    let at = time_until_now(caller, fields, "at")?;
    Ok(StoreRestoration {
        at: at.map(Timestamp::to_rfc3339),
        at_seq: fields.number("at_seq")?,
        path_prefix: fields.directory("path_prefix"),
        ..StoreRestoration::default()
    })
}

/// `GET /console/stores/{id}/restore?at=`: the plan
pub(super) async fn preview_restoration(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    let (engine, principal) = (&caller.engine, &caller.principal);
    let store = engine.stores.get(principal, store_id).await?;
    let when = moment_in_words(&caller.query, [POINT[0], POINT[1]]);
    let frame = caller.frame(format!("Restore {}", store.name));
    let confirmation = Confirmation::new(&caller, store_id, "restore", &POINT).await?;
    let plan = if when.is_some() {
        let request = StoreRestoration { dry_run: Some(true), ..restoration_of(&caller, &caller.query)? };
        let undo = engine.undos.restore(principal, store_id, request).await?;
        Some(Plan::of(&caller, &undo).await)
    } else {
        None
    };
    page(&RestorePage { frame, when, plan, confirmation, store, query: caller.query })
}

pub(super) async fn restore(Path(store_id): Path<StoreId>, form: Form) -> PageResult {
    let request = restoration_of(&form, &form.fields)?;
    let until_seq = form.fields.number("before_seq")?;
    let request = StoreRestoration { until_seq, idempotency: form.call()?, ..request };
    let undo = form.engine.undos.restore(&form.principal, store_id, request).await?;
    show_outcome(&form, store_id, &undo).await
}

#[derive(Template)]
#[template(path = "undone.html")]
struct UndonePage {
    frame: Frame,
    store: Store,
    title: &'static str,
    plan: Plan,
    /// Of an undo in several commits.
    status: Option<UndoStatus>,
    error: Option<String>,
    /// The number of memories that were changed.
    done: u64,
    /// The number of memories that were not changed.
    left: u64,
    /// The form that ends it. `None`: it has ended, or the caller may not.
    cancel: Option<String>,
    before_seq: u64,
    /// The page that takes this undo back. `None`: the caller may not.
    undo_href: Option<String>,
}

/// Shows the changed memories, or leads to the page of an undo that goes on.
async fn show_outcome(form: &Form, store_id: StoreId, undo: &MemoryUndo) -> PageResult {
    let before_seq = form.fields.number("before_seq")?.unwrap_or_default();
    if undo.id.is_none() && undo.data.is_empty() {
        return Err(Refusal::invalid(
            "there is nothing to take back: no memory has such changes, or each is as it was before them",
        ));
    }
    if let Some(undo_id) = undo.id {
        return Ok(see_other(&progress_href(store_id, undo_id, before_seq)));
    }
    show_undone(form, store_id, undo, before_seq).await
}

fn progress_href(store_id: StoreId, undo_id: MemoryUndoId, before_seq: u64) -> String {
    format!("/console/stores/{store_id}/undo/{undo_id}?before_seq={before_seq}")
}

pub(super) async fn cancel(
    Path((store_id, undo_id)): Path<(StoreId, MemoryUndoId)>,
    form: Form,
) -> PageResult {
    form.engine.undos.cancel(&form.principal, store_id, undo_id).await?;
    let before_seq = form.fields.number("before_seq")?.unwrap_or_default();
    Ok(see_other(&progress_href(store_id, undo_id, before_seq)))
}

pub(super) async fn progress(
    caller: Caller,
    Path((store_id, undo_id)): Path<(StoreId, MemoryUndoId)>,
) -> PageResult {
    let undo = caller.engine.undos.get(&caller.principal, store_id, undo_id).await?;
    let before_seq = caller.query.number("before_seq")?.unwrap_or_default();
    show_undone(&caller, store_id, &undo, before_seq).await
}

async fn show_undone(caller: &Caller, store_id: StoreId, undo: &MemoryUndo, before_seq: u64) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let frame = caller.frame(format!("Undo in {}", store.name));
    let plan = Plan::of(caller, undo).await;
    let is_under_way = undo.status == Some(UndoStatus::InProgress);
    let cancelled = undo.id.filter(|_| is_under_way && may_undo(caller, store_id, undo.actor.as_ref()));
    page(&UndonePage {
        title: match undo.status {
            Some(UndoStatus::InProgress) => "Changes are being taken back",
            Some(UndoStatus::Failed | UndoStatus::Cancelled) => "Not all changes were taken back",
            Some(UndoStatus::Done) | None => "Changes were taken back",
        },
        done: plan.made.saturating_sub(undo.left),
        plan,
        cancel: cancelled.map(|undo_id| format!("/console/stores/{store_id}/undo/{undo_id}/cancel")),
        before_seq,
        status: undo.status,
        error: undo.error.clone(),
        left: undo.left,
        undo_href: changes_href(caller, store_id, undo.actor.as_ref(), before_seq),
        frame,
        store,
    })
}

/// The page that plans to take back what an actor changed after a version. `None`: the caller may not.
pub(super) fn changes_href(
    caller: &Caller,
    store_id: StoreId,
    actor: Option<&Actor>,
    after_seq: u64,
) -> Option<String> {
    Some(format!("{}&after_seq={after_seq}", href_for(caller, store_id, actor?)?))
}

/// The page that plans to take back the changes of an actor. `None`: the caller may not.
pub(super) fn href_for(caller: &Caller, store_id: StoreId, actor: &Actor) -> Option<String> {
    let may = may_undo(caller, store_id, Some(actor));
    let actor = encoded(&actor_in_form(Some(actor)));
    may.then(|| format!("/console/stores/{store_id}/undo?actor={actor}"))
}

/// Whether the caller may take back what an actor changed, and end the undos of the actor. `None`: the operator.
fn may_undo(caller: &Caller, store_id: StoreId, actor: Option<&Actor>) -> bool {
    let is_own = actor.is_some() && actor == caller.principal.actor();
    caller.principal.require_writable(store_id).is_ok()
        && caller.may(Scope::MemoryRead)
        && (is_own || caller.may(Scope::StoresAdmin))
}

/// `POST /console/stores/{id}/versions/{id}/undo`: takes back one change
pub(super) async fn undo_version(Path((store_id, version_id)): OfVersion, form: Form) -> PageResult {
    let undo = form.engine.undos.undo_version(&form.principal, store_id, version_id).await?;
    let Some(undone) = undo.data.first() else {
        return done(&format!("/console/stores/{store_id}"), Done::MemoryUnchanged);
    };
    if let Some(reason) = undone.reason {
        return Err(Refusal::Invalid(format!("the change cannot be taken back: {}", why(reason))));
    }
    let href = href_of(store_id, undone.memory_id);
    match last_version(&form, store_id, undone.memory_id).await? {
        Some(last) => done_as(&href, Done::ChangeUndone, last.version.version_id),
        None => done(&href, Done::ChangeUndone),
    }
}

/// The form beside the message about a change that the caller has just made: it takes the change
/// back. `last` is the memory's last version.
pub(super) fn undo_of(caller: &Caller, store: &Store, last: &ShownVersion) -> Option<Undo> {
    let version = &last.version;
    let made = caller.notice.as_ref().and_then(|notice| notice.version_id);
    let is_named = made == Some(version.version_id);
    // Another site of the domain may have made the cookie.
    let is_own = version.created_by.is_some() && version.created_by.as_ref() == caller.principal.actor();
    let may = caller.may_write(store) && caller.may(Scope::MemoryRead);
    let href = format!("{}/undo", version_href(last.store_id, version.version_id));
    (is_named && is_own && may).then(|| Undo { action: href, fields: Vec::new() })
}
