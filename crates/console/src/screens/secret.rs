//! A secret removed from a memory: an edit takes it out of the text, and each version that holds it
//! is redacted. The form never sends the secret in an address.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::{MemoryId, StoreId, VersionId, words};
use keepsake_engine::{EngineError, MemoryEdit, PageRequest, Precondition, ShownVersion, VersionQuery, View};
use keepsake_index::{Scope, Store};

use super::OfMemory;
use super::memory::CurrentMemory;
use super::version::VersionRow;
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page, page_with};
use crate::path::Path;
use crate::people::People;
use crate::request::{Caller, Form};
use crate::text::line_ends;
use crate::text::markup::{self, Markup, text_area};

/// A shorter text is in too many words.
const MIN_CHARS: usize = 4;
/// Stands in the text where the secret was.
const MARK: &str = "[removed]";
/// The word that confirms.
const WORD: &str = "remove";
/// Versions whose contents are read at once.
const PER_CALL: u64 = 20;
/// Versions of a memory that are searched, the newest first.
const MAX_VERSIONS: usize = 1_000;
/// Versions that the preview lists.
const MAX_ROWS: usize = 50;

/// The secret with each kind of line end.
struct Secret([String; 2]);

impl Secret {
    /// `None`: the text is too short.
    fn of(typed: &str) -> Option<Self> {
        let text = line_ends::typed(typed.trim());
        (text.chars().count() >= MIN_CHARS).then(|| Self([text.replace('\n', "\r\n"), text]))
    }

    fn is_in(&self, content: &str) -> bool {
        self.0.iter().any(|text| content.contains(text.as_str()))
    }

    fn removed_from(&self, content: &str) -> String {
        self.0.iter().fold(content.to_owned(), |content, text| content.replace(text.as_str(), MARK))
    }
}

/// What would be removed.
struct Plan {
    /// Whether the memory's current text has the secret.
    is_live: bool,
    versions: Vec<VersionRow>,
    count: u64,
    not_shown: u64,
    /// Whether the memory has more versions than were searched.
    is_cut: bool,
}

#[derive(Template)]
#[template(path = "secret.html")]
struct SecretPage {
    frame: Frame,
    found: CurrentMemory,
    typed: Markup,
    problem: Option<String>,
    plan: Option<Plan>,
}

/// `GET /console/stores/{id}/memories/{id}/secret`
pub(super) async fn ask(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    let found = CurrentMemory::inspect(&caller, store_id, memory_id).await?;
    page(&SecretPage::new(&caller, found, ""))
}

impl SecretPage {
    fn new(caller: &Caller, found: CurrentMemory, typed: &str) -> Self {
        let frame = caller.frame(format!("Remove a secret from {}", found.path()));
        Self { frame, found, typed: text_area(typed), problem: None, plan: None }
    }

    fn can_confirm(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.count > 0)
    }
}

/// The versions of a memory that hold the secret, and whether some were not searched.
async fn holding(
    caller: &Caller,
    (store_id, memory_id): (StoreId, MemoryId),
    secret: &Secret,
) -> Result<(Vec<ShownVersion>, bool), Refusal> {
    let mut query = VersionQuery {
        memory_id: Some(memory_id),
        page: PageRequest { limit: Some(PER_CALL), page: None },
        ..VersionQuery::default()
    };
    let (mut holding, mut searched) = (Vec::new(), 0);
    loop {
        let found = caller.engine.versions.list(&caller.principal, store_id, &query, View::Full).await?;
        searched += found.items.len();
        let holds = |shown: &ShownVersion| shown.content.as_deref().is_some_and(|text| secret.is_in(text));
        holding.extend(found.items.into_iter().filter(holds));
        query.page.page = found.next;
        if query.page.page.is_none() || searched >= MAX_VERSIONS {
            return Ok((holding, query.page.page.is_some()));
        }
    }
}

/// `POST /console/stores/{id}/memories/{id}/secret`: the preview; with the confirmation, the removal
pub(super) async fn remove(Path((store_id, memory_id)): OfMemory, form: Form) -> PageResult {
    form.principal.require(Scope::StoresAdmin)?;
    form.principal.require_writable(store_id)?;
    let typed = form.fields.text("secret");
    let found = CurrentMemory::read(&form, store_id, memory_id).await?;
    let Some(secret) = Secret::of(typed) else {
        let mut again = SecretPage::new(&form, found, typed);
        again.problem = Some(format!("Type at least {MIN_CHARS} characters of the secret."));
        return page_with(StatusCode::BAD_REQUEST, &again);
    };
    let is_live = secret.is_in(found.content());
    let (versions, is_cut) = holding(&form, (store_id, memory_id), &secret).await?;
    let confirmation = form.fields.filled("confirm");
    if confirmation == Some(WORD) && !versions.is_empty() {
        return carry_out(&form, found, &secret, versions).await;
    }
    let mut shown = SecretPage::new(&form, found, typed);
    let people = People::look_up(&form).await;
    let rows = versions.iter().take(MAX_ROWS);
    shown.plan = Some(Plan {
        is_live,
        versions: rows.map(|version| VersionRow::of(version, &people, &shown.frame)).collect(),
        count: versions.len() as u64,
        not_shown: versions.len().saturating_sub(MAX_ROWS) as u64,
        is_cut,
    });
    shown.problem = confirmation.map(|_| format!("To confirm, type the word {WORD}. Nothing was removed."));
    page_with(if shown.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }, &shown)
}

#[derive(Template)]
#[template(path = "secret_removed.html")]
struct RemovedPage {
    frame: Frame,
    store: Store,
    memory_href: String,
    path: Markup,
    is_edited: bool,
    redacted: Vec<VersionId>,
    count: u64,
    /// Versions that could not be redacted, and why.
    kept: Vec<(VersionId, String)>,
}

/// Edits the memory, redacts the versions, and shows the receipt.
async fn carry_out(
    form: &Form,
    found: CurrentMemory,
    secret: &Secret,
    versions: Vec<ShownVersion>,
) -> PageResult {
    let (store_id, memory_id) = (found.store.store_id, found.shown.memory.head.memory_id);
    let is_edited = secret.is_in(found.content());
    if is_edited {
        let edit = MemoryEdit {
            content: Some(secret.removed_from(found.content())),
            precondition: Some(Precondition::ContentSha256(found.shown.memory.head.content.sha256)),
            ..MemoryEdit::default()
        };
        form.engine.memories.update(&form.principal, store_id, memory_id, edit).await?;
    }
    let (mut redacted, mut kept) = (Vec::new(), Vec::new());
    for version in versions {
        let version_id = version.version.version_id;
        match form.engine.versions.redact(&form.principal, store_id, version_id).await {
            Ok(_) => redacted.push(version_id),
            Err(error @ (EngineError::Refused(_) | EngineError::NotFound(_))) => {
                kept.push((version_id, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    page(&RemovedPage {
        frame: form.frame("A secret was removed"),
        memory_href: found.href(),
        path: markup::path(found.path()),
        store: found.store,
        is_edited,
        count: redacted.len() as u64,
        redacted,
        kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_found_with_either_line_end() {
        let secret = Secret::of(" key\r\nof Ada ").unwrap();
        for content in ["a key\nof Ada b", "a key\r\nof Ada b"] {
            assert!(secret.is_in(content));
            assert_eq!(secret.removed_from(content), "a [removed] b");
        }
        assert!(!secret.is_in("a key of Ada") && Secret::of(" abc ").is_none());
    }
}
