//! The fields of filters, with the choices that they suggest by name.
//!
//! A field accepts the name of a choice, an id, or the unique beginning of one. A field of authors
//! also accepts the subject of a token, so the beginning of a name is no author.

use std::fmt::Display;

use askama::Template;
use keepsake_core::actor::ActorKind;
use keepsake_core::id::StoreKind;
use keepsake_core::{Actor, ApiKeyId, SessionId, StoreId};
use keepsake_engine::PageRequest;
use keepsake_index::{Scope, SessionFilter, StoreFilter, parse_audit_object_id};

use super::stores::MAX_SEARCHED_PAGES;
use crate::frame::Frame;
use crate::names::{SharedNames, with_id};
use crate::page::{Problem, Refusal};
use crate::people::{cut, session_name};
use crate::request::{Caller, Fields};
use crate::text::markup::Markup;

/// Choices of one field. More would make the page too large.
const MAX_CHOICES: usize = 100;
/// Stores that a form takes by name, one a line.
const MAX_LINES: usize = 20;
const KEYS: u64 = 45;
const SESSIONS: u64 = 45;
/// Stores among the objects of the audit.
const STORES: usize = 10;

/// Before the subject of a workload's token, as pages show it.
const WORKLOAD: &str = "service ";

/// An id tells the kind of an actor; another text is the subject of a token.
pub(super) fn actor_of(text: &str) -> (ActorKind, String) {
    if let Some(subject) = text.strip_prefix(WORKLOAD) {
        return (ActorKind::ServiceAccount, subject.to_owned());
    }
    let kind = if text.starts_with("apikey_") {
        ActorKind::ApiKey
    } else if text.starts_with("sesn_") {
        ActorKind::Session
    } else {
        ActorKind::User
    };
    (kind, text.to_owned())
}

/// The text that [`actor_of`] reads.
pub(super) fn actor_in_form(actor: Option<&Actor>) -> String {
    match actor {
        Some(Actor::ServiceAccount(subject)) => format!("{WORKLOAD}{subject}"),
        Some(actor) => actor.id(),
        None => String::new(),
    }
}

/// Whether a key or an agent has a name that is written as an id or as the subject of a token. Such a
/// name stands for nothing without its id.
fn is_like_an_author(name: &str) -> bool {
    name.contains(['@', '|', ':', '/'])
        || ["apikey_", "sesn_", WORKLOAD].iter().any(|begin| name.starts_with(begin))
}

#[derive(Debug, Clone)]
pub(super) struct Choice {
    id: String,
    name: String,
}

impl Choice {
    fn new(id: impl Display, name: &str) -> Self {
        Self { id: id.to_string(), name: cut(name) }
    }

    fn begins_with(&self, text: &str) -> bool {
        self.id.starts_with(text) || self.name.to_lowercase().starts_with(&text.to_lowercase())
    }
}

/// A field with its choices and the selected one.
#[derive(Template)]
#[template(path = "choice_field.html")]
pub(crate) struct ChoiceField {
    name: &'static str,
    label: &'static str,
    /// Shown if nothing is chosen.
    all: &'static str,
    /// The name of the selected choice, or the text that was sent.
    shown: String,
    /// The id of the selected choice.
    chosen: String,
    choices: Vec<Choice>,
    /// Whether nothing else can be chosen.
    is_complete: bool,
    is_wrong: bool,
    is_required: bool,
}

impl ChoiceField {
    /// The field of a form that cannot be sent without a choice.
    pub(super) fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// The field, marked if the problem is in it.
    pub(crate) fn marked(self, problem: &Problem) -> Self {
        Self { is_wrong: problem.is_at(self.name), ..self }
    }

    /// Whether a text was sent that is no choice, and may be a part of a name.
    pub(crate) fn is_unknown(&self) -> bool {
        let is_text = !self.chosen.is_empty() && !is_like_an_author(&self.chosen);
        is_text && self.choices.iter().all(|choice| choice.id != self.chosen)
    }
}

/// The choices of a field, each with another name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choices(Vec<Choice>);

impl Choices {
    fn new(mut choices: Vec<Choice>) -> Self {
        choices.truncate(MAX_CHOICES);
        let shared = SharedNames::among(choices.iter().map(|choice| (&choice.id, choice.name.as_str())));
        for choice in &mut choices {
            // Only keys and sessions are authors: the name of a store or a tenant may have a colon.
            let may_be_author = choice.id.starts_with("apikey_") || choice.id.starts_with("sesn_");
            if shared.has(&choice.name) || (may_be_author && is_like_an_author(&choice.name)) {
                choice.name = with_id(&choice.name, &choice.id);
            }
        }
        Self(choices)
    }

    /// Ids with their names.
    pub(crate) fn named_so<'a, I: Display>(named: impl IntoIterator<Item = (I, &'a str)>) -> Self {
        Self::new(named.into_iter().map(|(id, name)| Choice::new(id, name)).collect())
    }

    /// The caller's own key, and the newest keys and sessions; with a store, the sessions that have
    /// it attached.
    pub(super) async fn authors(caller: &Caller, store_id: Option<StoreId>) -> Self {
        let mut choices = keys(caller).await;
        let own = own_key(caller).filter(|own| choices.iter().all(|choice| choice.id != own.id));
        choices.extend(own);
        choices.extend(sessions(caller, store_id).await);
        Self::new(choices)
    }

    /// The caller's own key.
    pub(super) fn own(caller: &Caller) -> Self {
        Self::new(own_key(caller).into_iter().collect())
    }

    /// The newest objects that audit entries are about.
    pub(super) async fn objects(caller: &Caller, stores: &StoreChoices) -> Self {
        let mut choices: Vec<_> = stores.choices.0.iter().take(STORES).cloned().collect();
        choices.extend(keys(caller).await);
        choices.extend(sessions(caller, None).await);
        Self::new(choices)
    }

    /// Adds the people and workloads among the actors of a page.
    pub(super) fn add_people<'a>(&mut self, actors: impl IntoIterator<Item = &'a Actor>) {
        let has_subject = |actor: &&Actor| matches!(actor, Actor::User(_) | Actor::ServiceAccount(_));
        for actor in actors.into_iter().filter(has_subject) {
            let id = actor_in_form(Some(actor));
            if self.0.len() < MAX_CHOICES && self.0.iter().all(|choice| choice.id != id) {
                self.0.push(Choice { name: id.clone(), id });
            }
        }
    }

    pub(crate) fn name_of(&self, id: &str) -> Option<&str> {
        self.0.iter().find(|choice| choice.id == id).map(|choice| choice.name.as_str())
    }

    /// The choice with an id, or the only one with a name: older stores may share one.
    fn named(&self, text: &str) -> Option<&Choice> {
        let name = text.to_lowercase();
        let by_id = self.0.iter().find(|choice| choice.id == text);
        by_id.or_else(|| {
            let mut named = self.0.iter().filter(|choice| choice.name.to_lowercase() == name);
            named.next().filter(|_| named.next().is_none())
        })
    }

    /// The choice with a name or id, or the only one whose name or id begins so.
    fn find(&self, field: &str, text: &str) -> Result<&Choice, Refusal> {
        if let Some(choice) = self.named(text) {
            return Ok(choice);
        }
        let mut begun = self.0.iter().filter(|choice| choice.begins_with(text));
        let rule = match (begun.next(), begun.next()) {
            (Some(choice), None) => return Ok(choice),
            (Some(_), Some(_)) => "fits several names or ids: write more of it",
            (None, _) => "fits no name or id that you may see: choose one, or write the whole id",
        };
        Err(Refusal::Invalid(format!("`{field}` {rule}")))
    }

    /// Replaces the name in a field of authors by the id.
    pub(crate) fn resolve_author(&self, fields: &mut Fields, field: &'static str) -> Result<(), Refusal> {
        let Some(text) = fields.filled(field) else {
            return Ok(());
        };
        let is_whole_id = text.parse::<ApiKeyId>().is_ok() || text.parse::<SessionId>().is_ok();
        if is_whole_id {
            return Ok(());
        }
        let may_be_id = text.starts_with("apikey_") || text.starts_with("sesn_");
        let choice = if may_be_id { Some(self.find(field, text)?) } else { self.named(text) };
        if let Some(id) = choice.map(|choice| choice.id.clone()) {
            fields.set(field, id);
        }
        Ok(())
    }

    /// Replaces the name in a field of the audit's objects by the id.
    pub(crate) fn resolve_object(&self, fields: &mut Fields, field: &'static str) -> Result<(), Refusal> {
        let text = fields.filled(field).filter(|text| parse_audit_object_id(text).is_none());
        let Some(id) = text.map(|text| self.find(field, text)).transpose()?.map(|choice| choice.id.clone())
        else {
            return Ok(());
        };
        fields.set(field, id);
        Ok(())
    }

    pub(crate) fn field(
        &self,
        name: &'static str,
        label: &'static str,
        all: &'static str,
        fields: &Fields,
    ) -> ChoiceField {
        let chosen = fields.filled(name).unwrap_or_default();
        ChoiceField {
            name,
            label,
            all,
            shown: self.name_of(chosen).unwrap_or(chosen).to_owned(),
            chosen: chosen.to_owned(),
            choices: self.0.clone(),
            is_complete: false,
            is_wrong: false,
            is_required: false,
        }
    }
}

fn own_key(caller: &Caller) -> Option<Choice> {
    match (caller.principal.actor(), &caller.principal.key_name) {
        (Some(Actor::ApiKey(api_key_id)), Some(name)) => Some(Choice::new(api_key_id, name)),
        _ => None,
    }
}

async fn keys(caller: &Caller) -> Vec<Choice> {
    if !caller.may(Scope::KeysAdmin) {
        return Vec::new();
    }
    let newest = PageRequest { limit: Some(KEYS), page: None };
    let found = caller.engine.keys.list(&caller.principal, &newest).await;
    let keys = found.map(|page| page.items).unwrap_or_default();
    keys.iter().map(|key| Choice::new(key.api_key_id, &key.name)).collect()
}

async fn sessions(caller: &Caller, store_id: Option<StoreId>) -> Vec<Choice> {
    if !caller.may(Scope::MemoryRead) {
        return Vec::new();
    }
    let filter = SessionFilter { store_id, live: true, archived: true, ..SessionFilter::default() };
    let newest = PageRequest { limit: Some(SESSIONS), page: None };
    let found = caller.engine.sessions.summaries(&caller.principal, &filter, &newest).await;
    let sessions = found.map(|page| page.items).unwrap_or_default();
    sessions
        .iter()
        .map(|session| Choice::new(session.name.session_id, &session_name(&session.name)))
        .collect()
}

/// The newest stores of a credential, for a person to choose from.
#[derive(Debug, Default)]
pub(super) struct StoreChoices {
    choices: Choices,
    include_archived: bool,
    /// The page of the engine with older stores. `None`: there are none.
    next: Option<String>,
}

impl StoreChoices {
    pub(super) async fn of(caller: &Caller, include_archived: bool) -> Result<Self, Refusal> {
        let (choices, next) = page_of_stores(caller, include_archived, None).await?;
        Ok(Self { choices: Choices::new(choices), include_archived, next })
    }

    pub(super) fn name_of(&self, store_id: StoreId) -> Option<&str> {
        self.choices.name_of(&store_id.to_string())
    }

    /// As [`Frame::store_link`], with the name if the store is among the choices.
    pub(super) fn link(&self, store_id: StoreId, frame: &Frame) -> Markup {
        frame.store_link(store_id, self.name_of(store_id))
    }

    /// The store that a field names, whose id takes the place of the name.
    pub(super) async fn resolve(
        &self,
        caller: &mut Caller,
        field: &'static str,
    ) -> Result<Option<StoreId>, Refusal> {
        let text = caller.query.filled(field).filter(|text| text.parse::<StoreId>().is_err());
        if let Some(text) = text.map(str::to_owned) {
            let id = match self.choices.named(&text) {
                Some(choice) => choice.id.clone(),
                None => self.search(caller, &[&text]).await?.find(field, &text)?.id.clone(),
            };
            caller.query.set(field, id);
        }
        caller.query.id::<StoreKind>(field)
    }

    /// The stores of a text with a name or an id on each line. A name that several stores have is refused.
    pub(super) async fn resolve_lines(
        &self,
        caller: &Caller,
        field: &str,
        text: &str,
    ) -> Result<Vec<StoreId>, Refusal> {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.len() > MAX_LINES {
            return Err(Refusal::Invalid(format!("`{field}` must be at most {MAX_LINES} names or ids")));
        }
        let names: Vec<_> = lines.iter().copied().filter(|line| line.parse::<StoreId>().is_err()).collect();
        let found = self.search(caller, &names).await?;
        let id_of = |line: &&str| -> Result<StoreId, Refusal> {
            let id = match line.parse::<StoreId>() {
                Ok(store_id) => return Ok(store_id),
                Err(_) => &found.find(&cut(line), line)?.id,
            };
            id.parse::<StoreId>().map_err(|error| Refusal::Invalid(format!("`{field}` {error}")))
        };
        lines.iter().map(id_of).collect()
    }

    /// The choices, and older stores whose names or ids begin with one of the texts.
    async fn search(&self, caller: &Caller, texts: &[&str]) -> Result<Choices, Refusal> {
        let mut found = self.choices.clone();
        let (mut next, mut pages) = (self.next.clone().filter(|_| !texts.is_empty()), 1);
        while let Some(page) = next.take().filter(|_| pages < MAX_SEARCHED_PAGES) {
            let (choices, following) = page_of_stores(caller, self.include_archived, Some(page)).await?;
            let is_wanted = |choice: &Choice| texts.iter().any(|text| choice.begins_with(text));
            found.0.extend(choices.into_iter().filter(is_wanted));
            next = following;
            pages += 1;
        }
        Ok(found)
    }

    pub(super) fn field(
        &self,
        name: &'static str,
        label: &'static str,
        all: &'static str,
        fields: &Fields,
    ) -> ChoiceField {
        let field = self.choices.field(name, label, all, fields);
        // Another store, such as an archived one, is shown by its id.
        let is_shown = field.shown.is_empty() || field.choices.iter().any(|choice| choice.id == field.chosen);
        ChoiceField { is_complete: self.next.is_none() && is_shown, ..field }
    }
}

async fn page_of_stores(
    caller: &Caller,
    include_archived: bool,
    page: Option<String>,
) -> Result<(Vec<Choice>, Option<String>), Refusal> {
    let filter = StoreFilter { include_archived, ..StoreFilter::default() };
    let asked = PageRequest { limit: Some(MAX_CHOICES as u64), page };
    let found = caller.engine.stores.list(&caller.principal, &filter, &asked).await?;
    Ok((found.items.iter().map(|store| Choice::new(store.store_id, &store.name)).collect(), found.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_of_ids_are_resolved() {
        let choice = |id: &str, name: &str| Choice::new(id, name);
        let choices = Choices::new(vec![
            choice("apikey_0AAAAAAAAA", "Laptop"),
            choice("apikey_0BBBBBBBBB", "ci"),
            choice("sesn_0CCCCCCCCC", "ci"),
            choice("sesn_0DDDDDDDDD", "ada@example.com"),
        ]);
        let resolved = |text: &str| {
            let mut fields = Fields::default();
            fields.add("actor", text.to_owned());
            choices.resolve_author(&mut fields, "actor").ok().map(|()| fields.text("actor").to_owned())
        };
        for (text, id) in [
            ("laptop", Some("apikey_0AAAAAAAAA")),
            ("apikey_0B", Some("apikey_0BBBBBBBBB")),
            ("ci (sesn_…CCCCCC)", Some("sesn_0CCCCCCCCC")),
            ("lap", Some("lap")),
            ("ada@example.com", Some("ada@example.com")),
            ("apikey_0", None),
            ("sesn_1", None),
        ] {
            assert_eq!(resolved(text).as_deref(), id, "{text}");
        }
        let store = Choices::new(vec![choice("memstore_0A", "Support: customers")]);
        assert_eq!(store.name_of("memstore_0A"), Some("Support: customers"));
        let shared = Choices(vec![choice("memstore_0A", "notes"), choice("memstore_0B", "Notes")]);
        assert!(shared.find("store", "notes").is_err() && shared.find("store", "memstore_0B").is_ok());
    }
}
