//! The audit: filtered, and saved as a file.

use std::fmt::Write;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use keepsake_core::Timestamp;
use keepsake_engine::{AuditQuery, Engine, PageRequest};
use keepsake_index::{
    AuditAction, AuditEntry, Auditor, audit_object_id, audit_object_type, parse_audit_object_id,
};

use crate::frame::{Frame, Tab};
use crate::page::{PageResult, Refusal, download, page};
use crate::people::People;
use crate::request::{Caller, Fields, Pager, Query};
use crate::text::markup::{Markup, id, id_link, time};

const PER_PAGE: u64 = 100;
/// Calls of the engine for one file: 10,000 entries.
const MAX_EXPORTED_PAGES: usize = 100;

struct Row {
    at: Markup,
    actor: Markup,
    action: String,
    object: Markup,
    store: Markup,
}

impl Row {
    fn of(entry: &AuditEntry, people: &People, now: Timestamp) -> Self {
        let actor = match entry.actor.parse::<Auditor>() {
            Ok(Auditor::Credential(actor)) => people.show(Some(&actor)),
            Ok(Auditor::Operator | Auditor::OperatorCli) => Markup::text("the operator"),
            Ok(Auditor::Job) => Markup::text("a job"),
            Err(_) => Markup::text(&entry.actor),
        };
        Self {
            at: time(entry.at, now),
            actor,
            action: entry.action.clone(),
            object: object_of(entry),
            store: entry.store_id.map_or_else(Markup::default, |store_id| {
                let full = store_id.to_string();
                id_link(&full, &format!("/console/stores/{full}"))
            }),
        }
    }
}

/// Links to the object's page, if it has one.
fn object_of(entry: &AuditEntry) -> Markup {
    let Some(object_id) = entry.object_id else {
        return Markup::default();
    };
    let full = audit_object_id(&entry.action, object_id);
    let below = match (audit_object_type(&entry.action), entry.store_id) {
        ("memory_store", _) => format!("stores/{full}"),
        ("memory_version", Some(store_id)) => format!("stores/{store_id}/versions/{full}"),
        ("session", _) => format!("sessions/{full}"),
        ("api_key", _) => format!("keys/{full}"),
        ("erasure", _) => format!("erasures/{full}"),
        _ => return id(&full),
    };
    id_link(&full, &format!("/console/{below}"))
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    rows: Vec<Row>,
    pager: Pager,
    actions: Vec<(&'static str, bool)>,
    actor: String,
    object: String,
    from: String,
    to: String,
    csv_href: String,
    json_href: String,
}

fn query_of(fields: &Fields, page: PageRequest) -> Result<AuditQuery, Refusal> {
    let object = |text: &str| {
        let rule = || Refusal::Invalid("`object` must be the id of an object".to_owned());
        parse_audit_object_id(text).ok_or_else(rule)
    };
    Ok(AuditQuery {
        created_from: fields.time("from")?,
        created_to: fields.until("to")?,
        action: fields.filled("action").and_then(AuditAction::parse),
        actor_id: fields.filled("actor").map(str::to_owned),
        object_id: fields.filled("object").map(object).transpose()?,
        page,
    })
}

/// `GET /console/audit`
pub(super) async fn list(State(engine): State<Engine>, caller: Caller, Query(fields): Query) -> PageResult {
    let query = query_of(&fields, fields.page(PER_PAGE))?;
    let found = engine.audit.list(&caller.principal, &query).await?;
    let people = People::look_up(&engine, &caller).await;
    let (now, chosen) = (engine.now(), fields.text("action"));
    let export = |format: &str| format!("/console/audit/export{}&format={format}", fields.with_page(""));
    page(&AuditPage {
        frame: caller.frame("Audit", Tab::Audit),
        rows: found.items.iter().map(|entry| Row::of(entry, &people, now)).collect(),
        pager: fields.pager(found.next),
        actions: AuditAction::ALL.map(|action| (action.name(), action.name() == chosen)).to_vec(),
        actor: fields.text("actor").to_owned(),
        object: fields.text("object").to_owned(),
        from: fields.text("from").to_owned(),
        to: fields.text("to").to_owned(),
        csv_href: export("csv"),
        json_href: export("jsonl"),
    })
}

/// `GET /console/audit/export?format=csv`: the newest 10,000 entries of a filter
pub(super) async fn export(
    State(engine): State<Engine>,
    caller: Caller,
    Query(fields): Query,
) -> Result<Response, Refusal> {
    let is_csv = fields.text("format") != "jsonl";
    let first = PageRequest { limit: Some(PER_PAGE), page: None };
    let mut query = query_of(&fields, first)?;
    let mut text = String::new();
    if is_csv {
        text.push_str("created_at,actor,action,object_id,memory_store_id\r\n");
    }
    for _ in 0..MAX_EXPORTED_PAGES {
        let found = engine.audit.list(&caller.principal, &query).await?;
        for entry in &found.items {
            push_entry(&mut text, entry, is_csv);
        }
        query.page.page = found.next;
        if query.page.page.is_none() {
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

fn push_entry(text: &mut String, entry: &AuditEntry, is_csv: bool) {
    let object = entry.object_id.map(|id| audit_object_id(&entry.action, id)).unwrap_or_default();
    let store = entry.store_id.map(|store_id| store_id.to_string()).unwrap_or_default();
    let at = entry.at.to_rfc3339();
    if is_csv {
        let cells = [&at, &entry.actor, &entry.action, &object, &store].map(|cell| quoted(cell));
        let _ = write!(text, "{}\r\n", cells.join(","));
    } else {
        let line = serde_json::json!({
            "created_at": at,
            "actor": entry.actor,
            "action": entry.action,
            "object_id": (!object.is_empty()).then_some(object),
            "memory_store_id": (!store.is_empty()).then_some(store),
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
