//! The audit: filtered, and saved as a file.

use std::fmt::Write;

use askama::Template;
use axum::response::Response;
use keepsake_core::{Actor, ApiKeyId, SessionId, StoreId, Timestamp};
use keepsake_engine::{Page, PageRequest};
use keepsake_index::{
    AuditAction, AuditEntry, AuditFilter, Auditor, OperatorActions, Scope, action_words,
    parse_audit_object_id,
};

use super::choices::{ChoiceField, Choices, StoreChoices, actor_of};
use crate::frame::Frame;
use crate::page::{PageResult, Problem, Refusal, download, page_with};
use crate::people::People;
use crate::request::{Caller, Fields, Pager};
use crate::text::markup::{Markup, id, id_link};

const PER_PAGE: u64 = 100;
/// Calls of the engine for one file: 10,000 entries.
const MAX_EXPORTED_PAGES: usize = 100;

fn auditor_of(entry: &AuditEntry, people: &People) -> Markup {
    match &entry.actor {
        Auditor::Credential(actor) => people.show(Some(actor)),
        Auditor::Operator | Auditor::OperatorCli => Markup::text("the operator"),
        Auditor::Job => Markup::text("a job"),
    }
}

/// The key or the session that an entry is about.
fn actor_in(entry: &AuditEntry) -> Option<Actor> {
    let object = entry.object.as_ref()?;
    match object.r#type.as_str() {
        "api_key" => object.id.parse::<ApiKeyId>().ok().map(Actor::ApiKey),
        "session" => object.id.parse::<SessionId>().ok().map(Actor::Session),
        _ => None,
    }
}

/// Links to the object's page, if it has one that the person may open.
fn object_of(entry: &AuditEntry, people: &People, stores: &StoreChoices, frame: &Frame) -> Markup {
    let Some(object) = &entry.object else {
        return Markup::default();
    };
    let full = object.id.as_str();
    let actor = actor_in(entry);
    if people.name_of(actor.as_ref()).is_some() {
        return people.show(actor.as_ref());
    }
    if let ("memory_store", Ok(store_id)) = (object.r#type.as_str(), full.parse::<StoreId>()) {
        return stores.link(store_id, frame);
    }
    if object.r#type == "tenant" && !frame.account.tenant.is_empty() {
        return Markup::trusted(format!("<bdi>{}</bdi>", Markup::text(&frame.account.tenant)));
    }
    let (section, below) = match (object.r#type.as_str(), entry.store_id) {
        ("memory_version", Some(store_id)) => ("/console/stores", format!("{store_id}/versions/{full}")),
        ("session", _) => ("/console/sessions", full.to_owned()),
        ("api_key", _) => ("/console/keys", full.to_owned()),
        ("erasure", _) => ("/console/erasures", full.to_owned()),
        _ => return id(full),
    };
    if frame.leads_to(section) { id_link(full, &format!("{section}/{below}")) } else { id(full) }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    entries: Vec<AuditEntry>,
    people: People,
    stores: StoreChoices,
    pager: Pager,
    /// The actor and the object.
    choices: [ChoiceField; 2],
    actions: Vec<ActionChoice>,
    query: Fields,
    is_filtered: bool,
    problem: Problem,
}

/// An action that a filter offers: its name and its words.
pub(crate) type ActionChoice = (&'static str, &'static str);

/// The actions in the audit of a tenant.
pub(crate) fn actions_of_tenant() -> Vec<ActionChoice> {
    AuditAction::ALL.map(|action| (action.name(), action.words())).into()
}

/// The address of the entries as a file, but for the format at its end.
fn export_of(query: &Fields) -> String {
    format!("/console/audit/export{}&format=", query.with_page(""))
}

/// `of_operator`: what the field of actions names if it is no action of a tenant's audit.
fn filter_of(fields: &Fields, of_operator: Option<OperatorActions>) -> Result<AuditFilter, Refusal> {
    let action_of = |text: &str| AuditAction::parse(text).ok_or("must be an action of the list");
    Ok(AuditFilter {
        created_from: fields.time("from")?,
        created_to: fields.until("to")?,
        action: if of_operator.is_some() { None } else { fields.parsed("action", action_of)? },
        of_operator,
        actor_id: fields.filled("actor").map(|text| actor_of(text).1),
        object_id: fields
            .parsed("object", |text| parse_audit_object_id(text).ok_or("must be the id of an object"))?,
    })
}

/// The filter of a page, after ids took the places of the names in its fields.
pub(crate) fn resolved_filter(
    fields: &mut Fields,
    actors: &Choices,
    objects: &Choices,
    of_operator: Option<OperatorActions>,
    now: Timestamp,
) -> Result<AuditFilter, Refusal> {
    actors.resolve_author(fields, "actor")?;
    objects.resolve_object(fields, "object")?;
    fields.choose_period(now)?;
    filter_of(fields, of_operator)
}

/// The newest stores. Without the right to see stores, ids are shown.
async fn stores_of(caller: &Caller) -> Result<StoreChoices, Refusal> {
    if caller.may(Scope::MemoryRead) {
        StoreChoices::of(caller, true).await
    } else {
        Ok(StoreChoices::default())
    }
}

/// The names of the authors of some entries, and of the keys and sessions that these are about.
async fn people_of(caller: &Caller, entries: &[AuditEntry]) -> People {
    let named: Vec<_> = entries.iter().filter_map(actor_in).collect();
    let by = entries.iter().filter_map(|entry| entry.actor.actor());
    People::look_up(caller, by.chain(&named).collect()).await
}

pub(super) async fn list(mut caller: Caller) -> PageResult {
    caller.principal.require_for_all_stores(Scope::TenantAdmin)?;
    let stores = stores_of(&caller).await?;
    let mut actors = Choices::authors(&caller, None).await;
    let objects = Choices::objects(&caller, &stores).await;
    let now = caller.engine.now();
    let resolved = resolved_filter(&mut caller.query, &actors, &objects, None, now);
    let is_filtered = resolved.as_ref().is_ok_and(|filter| *filter != AuditFilter::default());
    let (found, problem) = match resolved {
        Ok(filter) => {
            let asked = caller.query.page(PER_PAGE);
            (caller.engine.audit.list(&caller.principal, &filter, &asked).await?, Problem::default())
        }
        Err(refusal) => (Page { items: Vec::new(), next: None }, Problem::of(refusal)?),
    };
    actors.add_people(found.items.iter().filter_map(|entry| entry.actor.actor()));
    let people = people_of(&caller, &found.items).await;
    let shown = AuditPage {
        frame: caller.frame("Audit"),
        entries: found.items,
        people,
        stores,
        pager: caller.query.pager(found.next),
        choices: [
            actors.field("actor", "Author", "everybody", &caller.query).marked(&problem),
            objects.field("object", "Object", "everything", &caller.query).marked(&problem),
        ],
        actions: actions_of_tenant(),
        query: caller.query,
        is_filtered,
        problem,
    };
    page_with(shown.problem.status(), &shown)
}

/// `GET /console/audit/export?format=csv`: the newest 10,000 entries of a filter
pub(super) async fn export(caller: Caller) -> Result<Response, Refusal> {
    let is_csv = caller.query.text("format") != "jsonl";
    let mut request = PageRequest { limit: Some(PER_PAGE), page: None };
    let filter = filter_of(&caller.query, None)?;
    let stores = stores_of(&caller).await?;
    let mut text = String::new();
    if is_csv {
        text.push_str(
            "created_at,actor,action,object_id,memory_store_id,actor_name,object_name,memory_store_name\r\n",
        );
    }
    for _ in 0..MAX_EXPORTED_PAGES {
        let found = caller.engine.audit.list(&caller.principal, &filter, &request).await?;
        let people = people_of(&caller, &found.items).await;
        for entry in &found.items {
            push_entry(&mut text, entry, &people, &stores, is_csv);
        }
        request.page = found.next;
        if request.page.is_none() {
            break;
        }
    }
    let (name, content_type) = if is_csv {
        ("audit.csv", "text/csv; charset=utf-8")
    } else {
        ("audit.jsonl", "application/x-ndjson")
    };
    Ok(download(name, content_type, text))
}

/// A name that the page does not show is empty or null.
fn push_entry(text: &mut String, entry: &AuditEntry, people: &People, stores: &StoreChoices, is_csv: bool) {
    let (at, actor) = (entry.at.to_rfc3339(), entry.actor.to_string());
    let object = entry.object.as_ref().map(|object| object.id.as_str()).unwrap_or_default();
    let store = entry.store_id.map(|store_id| store_id.to_string()).unwrap_or_default();
    let (actor_name, of_actor) = (people.name_of(entry.actor.actor()), actor_in(entry));
    let store_name = |store_id| stores.name_of(store_id);
    let object_name = people.name_of(of_actor.as_ref()).or_else(|| object.parse().ok().and_then(store_name));
    let names = [actor_name, object_name, entry.store_id.and_then(store_name)];
    if is_csv {
        let ids = [at.as_str(), &actor, &entry.action, object, &store];
        let cells: Vec<_> = ids.into_iter().chain(names.map(Option::unwrap_or_default)).map(quoted).collect();
        let _ = write!(text, "{}\r\n", cells.join(","));
    } else {
        let line = serde_json::json!({
            "created_at": at,
            "actor": actor,
            "action": entry.action,
            "object_id": (!object.is_empty()).then_some(object),
            "memory_store_id": (!store.is_empty()).then_some(store),
            "actor_name": names[0],
            "object_name": names[1],
            "memory_store_name": names[2],
        });
        let _ = writeln!(text, "{line}");
    }
}

/// Writes a cell that no spreadsheet takes for a formula.
fn quoted(cell: &str) -> String {
    let guard = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", cell.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_not_formulas() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
    }
}
