//! A secret removed from a memory: an edit takes it out of the text, and each version that holds it
//! is redacted. The form never sends the secret in an address.

use askama::Template;
use axum::http::StatusCode;
use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, VersionId, words};
use keepsake_engine::{EngineError, MemoryEdit, PageRequest, Precondition, ShownVersion, VersionQuery, View};
use keepsake_index::{Scope, Store};

use super::OfMemory;
use super::memory::CurrentMemory;
use super::version::VersionRow;
use crate::frame::Frame;
use crate::page::{PageResult, page, page_with};
use crate::path::Path;
use crate::people::{People, authors};
use crate::request::{Caller, Form};
use crate::text::line_ends;
use crate::text::markup::{self, Markup, text_area};

/// A shorter text is in too many words.
const MIN_CHARS: usize = 4;
/// Stands in the text where the secret was.
const MARK: &str = "[removed]";
/// The word that confirms.
const WORD: &str = "remove";
const CHANGED: &str = "The memory or the text has changed since you looked: look again. Nothing was removed.";
/// Versions whose contents are read at once.
const PER_CALL: u64 = 20;
/// A search ends after the page on which it reaches one of these.
const MAX_SEARCHED: usize = 1_000;
const MAX_FOUND: usize = 100;

/// The secret, with `\n` at the end of each line.
struct Secret(String);

impl Secret {
    /// `None`: the text is too short.
    fn of(typed: &str) -> Option<Self> {
        let text = line_ends::typed(typed.trim());
        (text.chars().count() >= MIN_CHARS).then_some(Self(text))
    }

    /// The line ends of the text do not matter.
    fn is_in(&self, text: &str) -> bool {
        line_ends::typed(text).contains(&self.0)
    }

    fn is_held_by(&self, shown: &ShownVersion) -> bool {
        let path = shown.version.path.as_ref().map(MemoryPath::as_str);
        [path, shown.content.as_deref()].into_iter().flatten().any(|text| self.is_in(text))
    }

    fn removed_from(&self, content: &str) -> String {
        line_ends::kept(content, &line_ends::typed(content).replace(&self.0, MARK))
    }
}

#[derive(Default)]
struct Holding {
    /// The versions that hold the secret.
    holders: Vec<VersionRow>,
    /// The first version that was searched.
    newest: Option<VersionId>,
    /// Versions whose contents are lost, and why.
    unsearched: Vec<(VersionRow, String)>,
    /// The place of the older versions that were not searched.
    next: Option<String>,
}

impl Holding {
    /// The hash of what the preview showed, which the confirmation sends back.
    fn preview_hash(&self, secret: &Secret, from: &str, is_live: bool) -> String {
        let ids = self.holders.iter().map(|holder| holder.id.to_string());
        let ids = ids.collect::<Vec<_>>().join(" ");
        let preview = format!("{}:{}{}:{from}{is_live} {ids}", secret.0.len(), secret.0, from.len());
        ContentHash::of(preview.as_bytes()).to_string()
    }
}

struct Search<'a> {
    form: &'a Form,
    store_id: StoreId,
    memory_id: MemoryId,
    secret: &'a Secret,
    frame: Frame,
}

impl Search<'_> {
    /// The versions that hold the secret, the newest first, from a place on; an empty one is the
    /// newest version.
    async fn holding(&self, from: &str) -> Result<Holding, EngineError> {
        let from = (!from.is_empty()).then(|| from.to_owned());
        let mut query = VersionQuery {
            memory_id: Some(self.memory_id),
            page: PageRequest { limit: Some(PER_CALL), page: from },
            ..VersionQuery::default()
        };
        let (versions, principal) = (&self.form.engine.versions, &self.form.principal);
        let (mut holding, mut searched) = (Holding::default(), 0);
        loop {
            let listed = versions.list(principal, self.store_id, &query, View::Full).await?;
            searched += listed.items.len();
            holding.newest =
                holding.newest.or_else(|| listed.items.first().map(|shown| shown.version.version_id));
            let (held, others): (Vec<_>, Vec<_>) =
                listed.items.iter().partition(|shown| self.secret.is_held_by(shown));
            let lost =
                others.into_iter().filter_map(|shown| Some((shown, shown.content_error()?.to_string())));
            let lost: Vec<_> = lost.collect();
            let named = held.iter().chain(lost.iter().map(|(shown, _)| shown));
            let people = People::look_up(self.form, authors(named.copied())).await;
            let row = |shown: &ShownVersion| VersionRow::of(shown, &people, &self.frame);
            holding.holders.extend(held.into_iter().map(row));
            holding.unsearched.extend(lost.into_iter().map(|(shown, why)| (row(shown), why)));
            let is_enough = searched >= MAX_SEARCHED || holding.holders.len() >= MAX_FOUND;
            if is_enough || listed.next.is_none() {
                holding.next = listed.next;
                return Ok(holding);
            }
            query.page.page = listed.next;
        }
    }

    async fn redact(&self, holders: Vec<VersionRow>, receipt: &mut RemovedPage) {
        for version in holders {
            let versions = &self.form.engine.versions;
            match versions.redact(&self.form.principal, self.store_id, version.id).await {
                Ok(_) => receipt.redacted.push(version),
                Err(error) => receipt.kept.push((version, error.to_string())),
            }
        }
    }
}

/// What would be removed.
struct Plan {
    secret: String,
    /// Where the search began; empty: at the newest version.
    from: String,
    /// [`Holding::preview_hash`]
    seen: String,
    /// Whether the memory's current text has the secret.
    is_live: bool,
    is_in_path: bool,
    versions: Vec<VersionRow>,
    count: u64,
    unsearched: Vec<(VersionRow, String)>,
    next: Option<String>,
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

pub(super) async fn ask(caller: Caller, Path((store_id, memory_id)): OfMemory) -> PageResult {
    let found = CurrentMemory::inspect(&caller, store_id, memory_id).await?;
    page(&SecretPage::new(&caller, found, ""))
}

impl SecretPage {
    fn new(caller: &Caller, found: CurrentMemory, typed: &str) -> Self {
        let frame = caller.frame(format!("Remove a secret from {}", markup::in_text(found.path())));
        Self { frame, found, typed: text_area(typed), problem: None, plan: None }
    }

    fn can_confirm(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.count > 0 || plan.is_live)
    }

    /// Whether the search began at an older version. The secret cannot be changed then, because the newer
    /// versions were searched for it.
    fn is_continued(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| !plan.from.is_empty())
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
    let from = form.fields.filled("from").unwrap_or_default();
    let frame = form.frame("Remove a secret");
    let search = Search { form: &form, store_id, memory_id, secret: &secret, frame };
    let is_live = secret.is_in(found.content());
    let holding = search.holding(from).await?;
    let preview_hash = holding.preview_hash(&secret, from, is_live);
    let can_act = is_live || !holding.holders.is_empty();
    let (status, problem) = match form.fields.filled("confirm") {
        Some(WORD) if can_act && form.fields.text("seen") == preview_hash => {
            return carry_out(&search, &found, holding, from).await;
        }
        Some(WORD) => (StatusCode::CONFLICT, Some(CHANGED.to_owned())),
        Some(_) => {
            let problem = format!("To confirm, type the word {WORD}. Nothing was removed.");
            (StatusCode::BAD_REQUEST, Some(problem))
        }
        None => (StatusCode::OK, None),
    };
    let mut shown = SecretPage::new(&form, found, typed);
    shown.problem = problem;
    shown.plan = Some(Plan {
        from: from.to_owned(),
        seen: preview_hash,
        is_live,
        is_in_path: secret.is_in(shown.found.path()),
        count: holding.holders.len() as u64,
        versions: holding.holders,
        unsearched: holding.unsearched,
        next: holding.next,
        secret: secret.0,
    });
    page_with(status, &shown)
}

#[derive(Template)]
#[template(path = "secret_removed.html")]
struct RemovedPage {
    frame: Frame,
    store: Store,
    memory_href: String,
    path: Markup,
    secret: String,
    is_edited: bool,
    is_in_path: bool,
    problems: Vec<String>,
    redacted: Vec<VersionRow>,
    count: u64,
    /// Versions that could not be redacted, and why.
    kept: Vec<(VersionRow, String)>,
    unsearched: Vec<(VersionRow, String)>,
    next: Option<String>,
}

impl RemovedPage {
    /// Whether the secret is, or may be, still somewhere in the memory.
    fn is_left(&self) -> bool {
        let is_kept = !self.kept.is_empty() || !self.unsearched.is_empty();
        is_kept || self.is_in_path || !self.problems.is_empty() || self.next.is_some()
    }
}

/// Edits the memory, redacts the versions, and shows the receipt, whatever could not be done.
async fn carry_out(search: &Search<'_>, found: &CurrentMemory, holding: Holding, from: &str) -> PageResult {
    let (form, secret) = (search.form, search.secret);
    let mut receipt = RemovedPage {
        frame: form.frame("Remove a secret"),
        memory_href: found.href(),
        path: markup::path(found.path()),
        secret: secret.0.clone(),
        is_edited: false,
        is_in_path: secret.is_in(found.path()),
        problems: Vec::new(),
        redacted: Vec::new(),
        count: 0,
        kept: Vec::new(),
        unsearched: holding.unsearched,
        next: holding.next,
        store: found.store.clone(),
    };
    if secret.is_in(found.content()) {
        let edit = MemoryEdit {
            content: Some(secret.removed_from(found.content())),
            precondition: Some(Precondition::ContentSha256(found.shown.memory.head.content.sha256)),
            ..MemoryEdit::default()
        };
        let memories = &form.engine.memories;
        match memories.update(&form.principal, search.store_id, search.memory_id, edit).await {
            Ok(_) => receipt.is_edited = true,
            Err(error) => receipt.problems.push(format!("The current text still has the secret: {error}")),
        }
    }
    search.redact(holding.holders, &mut receipt).await;
    // Versions that were written meanwhile. Older ones, which the person has not seen, are left to a search from
    // the place of the receipt.
    match search.holding("").await {
        Ok(again) => {
            let seen_through = holding.newest.filter(|_| from.is_empty());
            for holder in again.holders {
                let is_kept = receipt.kept.iter().any(|(kept, _)| kept.id == holder.id);
                match seen_through {
                    _ if is_kept => {}
                    Some(newest) if holder.id > newest => {
                        search.redact(vec![holder], &mut receipt).await;
                    }
                    Some(_) if receipt.next.is_some() => {}
                    _ => receipt
                        .kept
                        .push((holder, "the list that you confirmed did not have this version".to_owned())),
                }
            }
            let known = &mut receipt.unsearched;
            for (version, why) in again.unsearched {
                if known.iter().all(|(other, _)| other.id != version.id) {
                    known.push((version, why));
                }
            }
        }
        Err(error) => receipt.problems.push(format!("The memory could not be searched again: {error}")),
    }
    receipt.count = receipt.redacted.len() as u64;
    page(&receipt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_found_with_any_line_ends() {
        let secret = Secret::of(" key\r\nof\nAda ").unwrap();
        for content in ["a key\nof\nAda b", "a key\r\nof\r\nAda b", "a key\nof\r\nAda b"] {
            assert!(secret.is_in(content));
            assert_eq!(secret.removed_from(content), "a [removed] b");
        }
        assert!(!secret.is_in("a key of Ada") && Secret::of(" abc ").is_none());
        assert_eq!(secret.removed_from("x\r\nkey\nof\nAda\ny\r\n"), "x\r\n[removed]\ny\r\n");
    }

    #[test]
    fn confirmation_names_all_that_was_seen() {
        let secret = |text: &str| Secret::of(text).unwrap();
        let seen =
            |text: &str, from: &str, is_live| Holding::default().preview_hash(&secret(text), from, is_live);
        let first = seen("s3cr3t", "", true);
        assert_eq!(first, seen(" s3cr3t\r\n", "", true));
        for other in [seen("s3cr3ts", "", true), seen("s3cr3t", "p", true), seen("s3cr3t", "", false)] {
            assert_ne!(first, other);
        }
    }
}
