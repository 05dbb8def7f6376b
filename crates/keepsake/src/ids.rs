//! Ids that are given by their beginning or a name, and names that several objects have.

use std::collections::BTreeSet;

use keepsake_client::{Client, Query};
use keepsake_config::{Failure, cli::Result};
use serde_json::Value;

use crate::failures::failure_of;
use crate::output::text_of;

/// Characters of an id after its prefix.
const ID_CHARS: usize = 26;
/// Items of a list that are compared with the beginning of an id.
const MAX_COMPARED: usize = 20_000;
/// Candidates that an error names.
const MAX_CANDIDATES: usize = 10;

/// A kind of objects that are given by the beginning of their id.
pub(crate) struct IdKind {
    prefix: &'static str,
    /// The noun of an object, with its article.
    noun: &'static str,
    /// The field of a listed item that has the id.
    field: &'static str,
    command: &'static str,
    /// Whether a revoked object leaves its name to the others.
    leaves_name: bool,
}

/// The fields that most kinds share.
const OBJECT: IdKind = IdKind { prefix: "", noun: "", field: "id", command: "", leaves_name: false };

pub(crate) const VERSION: IdKind =
    IdKind { prefix: "memver_", noun: "a version", command: "keepsake memory log", ..OBJECT };
/// A memory, found in the list of versions, which also has those of deleted memories.
pub(crate) const MEMORY: IdKind = IdKind {
    prefix: "mem_",
    noun: "a memory",
    field: "memory_id",
    command: "keepsake memory ls -o json",
    ..OBJECT
};
pub(crate) const STORE: IdKind =
    IdKind { prefix: "memstore_", noun: "a memory store", command: "keepsake store list --all", ..OBJECT };
pub(crate) const SESSION: IdKind =
    IdKind { prefix: "sesn_", noun: "a session", command: "keepsake session list", ..OBJECT };
pub(crate) const API_KEY: IdKind =
    IdKind { prefix: "apikey_", noun: "an API key", command: "keepsake key list", ..OBJECT };
pub(crate) const ERASURE: IdKind =
    IdKind { prefix: "erasure_", noun: "an erasure", command: "keepsake erasure list", ..OBJECT };

/// As [`API_KEY`], but a name means only a key that is not revoked.
pub(crate) const LIVE_API_KEY: IdKind = IdKind { leaves_name: true, ..API_KEY };

/// The ids of the items of a list that an argument means.
#[derive(Default)]
pub(crate) struct MeantIds {
    ids: BTreeSet<String>,
    /// Those that left the name.
    revoked: BTreeSet<String>,
}

impl IdKind {
    /// The given beginning of an id, or `None` if the text is something else.
    pub(crate) fn beginning<'a>(&self, given: &'a str) -> Option<&'a str> {
        // Tables shorten ids with this sign.
        let given = given.trim_end_matches('…');
        let rest = given.strip_prefix(self.prefix)?;
        let is_rest = rest.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        ((1..=ID_CHARS).contains(&rest.len()) && is_rest).then_some(given)
    }

    /// The beginning of an id in an argument that takes only ids.
    pub(crate) fn parse(&self, given: &str) -> Result<String, String> {
        let beginning = self.beginning(given).map(str::to_owned);
        beginning.ok_or_else(|| {
            format!("{} is given by its id or the beginning of it: {}…", self.noun, self.prefix)
        })
    }

    /// Whether an argument means this item of a list: by the beginning of its id, or else by its name.
    fn is_meant(&self, given: &str, item: &Value) -> bool {
        match self.beginning(given) {
            Some(beginning) => text_of(item, self.field).starts_with(beginning),
            None => item["name"] == given,
        }
    }

    /// Adds the id of a list's item if the argument means the item.
    pub(crate) fn add_if_meant(&self, found: &mut MeantIds, given: &str, item: &Value) {
        if self.is_meant(given, item) {
            let has_left =
                self.leaves_name && self.beginning(given).is_none() && item["revoked_at"].is_string();
            let ids = if has_left { &mut found.revoked } else { &mut found.ids };
            ids.insert(text_of(item, self.field).to_owned());
        }
    }

    /// The id that an argument means among the items of a list: see [`Self::is_meant`]. A whole id is taken as it is.
    pub(crate) async fn find(
        &self,
        client: &Client,
        list: &[&str],
        query: Query<'_>,
        given: &str,
    ) -> Result<String> {
        let given = self.beginning(given).unwrap_or(given);
        if self.beginning(given).is_some() && given.len() == self.prefix.len() + ID_CHARS {
            return Ok(given.to_owned());
        }
        let failed = || format!("{given} is not a whole id, and the list cannot be read");
        let (mut items, mut found, mut compared) = (client.pages(list, query), MeantIds::default(), 0);
        while let Some(item) = items.next::<Value>().await.map_err(failure_of(failed()))? {
            compared += 1;
            if compared > MAX_COMPARED {
                return Err(Failure::usage(format!(
                    "{given} is not a whole id, and there are too many to compare: give the whole id"
                )));
            }
            self.add_if_meant(&mut found, given, &item);
        }
        self.only_meant(self.command, &found, given)
    }

    /// The only id that an argument means; `command` shows all.
    pub(crate) fn only_meant(&self, command: &str, found: &MeantIds, given: &str) -> Result<String> {
        if found.ids.is_empty() && !found.revoked.is_empty() {
            let revoked = found.revoked.iter().collect::<Vec<_>>();
            let (noun, number, ids) = (self.bare_noun(), revoked.len(), listed(&revoked));
            return Err(Failure::not_found(if number == 1 {
                format!("the {noun} `{given}` is revoked already: {ids}")
            } else {
                format!("{number} {noun}s with the name `{given}` are revoked already: {ids}")
            }));
        }
        self.only_shown_by(command, &found.ids, given)
    }

    /// The only id that was found.
    pub(crate) fn only(&self, found: &BTreeSet<String>, given: &str) -> Result<String> {
        self.only_shown_by(self.command, found, given)
    }

    /// The noun without its article.
    fn bare_noun(&self) -> &'static str {
        self.noun.split_once(' ').map_or(self.noun, |(_, noun)| noun)
    }

    fn only_shown_by(&self, command: &str, found: &BTreeSet<String>, given: &str) -> Result<String> {
        let is_id = self.beginning(given).is_some();
        let noun = self.bare_noun();
        match found.iter().collect::<Vec<_>>().as_slice() {
            [id] => Ok((*id).clone()),
            [] if is_id => Err(Failure::not_found(format!(
                "no id of {} begins with `{given}`; `{command}` shows all",
                self.noun
            ))),
            [] => Err(Failure::not_found(format!(
                "no {noun} has the id or the name `{given}`; `{command}` shows all"
            ))),
            several if is_id => Err(Failure::usage(candidates(given, several))),
            several => Err(Failure::usage(several_named(&format!("{noun}s"), given, several))),
        }
    }
}

/// Says that a beginning is that of several ids.
pub(crate) fn candidates(beginning: &str, several: &[&String]) -> String {
    format!("{} ids begin with `{beginning}`: {}", several.len(), listed(several))
}

/// Says that several objects have a name.
pub(crate) fn several_named(nouns: &str, name: &str, several: &[&String]) -> String {
    format!("{} {nouns} have the name `{name}`; give an id: {}", several.len(), listed(several))
}

fn listed(several: &[&String]) -> String {
    let named = several.iter().take(MAX_CANDIDATES).map(|id| id.as_str()).collect::<Vec<_>>().join(", ");
    let more = if several.len() > MAX_CANDIDATES { ", …" } else { "" };
    format!("{named}{more}")
}
