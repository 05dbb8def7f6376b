//! Objects of a page that share a name.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use keepsake_index::{ApiKey, Store};

use crate::text::markup::{Markup, short};

/// The names that several objects of a page have.
#[derive(Debug)]
pub(crate) struct SharedNames(HashSet<String>);

/// Names that look the same to a person are equal.
fn folded(name: &str) -> String {
    name.trim().to_lowercase()
}

impl SharedNames {
    /// Of objects with their ids; an object may be there several times.
    pub(crate) fn among<'a, I: Display>(named: impl IntoIterator<Item = (I, &'a str)>) -> Self {
        let (mut ids, mut shared) = (HashMap::new(), HashSet::new());
        for (id, name) in named {
            let (id, name) = (id.to_string(), folded(name));
            if *ids.entry(name.clone()).or_insert_with(|| id.clone()) != id {
                shared.insert(name);
            }
        }
        Self(shared)
    }

    pub(crate) fn of_stores(stores: &[Store]) -> Self {
        Self::among(stores.iter().map(|store| (store.store_id, store.name.as_str())))
    }

    pub(crate) fn of_keys(keys: &[ApiKey]) -> Self {
        Self::among(keys.iter().map(|key| (key.api_key_id, key.name.as_str())))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(&folded(name))
    }

    /// The name, with the shortened id if another object has the same name.
    pub(crate) fn text(&self, name: &str, id: impl Display) -> String {
        if self.has(name) { with_id(name, id) } else { name.to_owned() }
    }

    /// The shortened id, which follows the name in a list; empty if no other object has the name.
    pub(crate) fn id_of(&self, name: &str, id: impl Display) -> Markup {
        if !self.has(name) {
            return Markup::default();
        }
        let full = Markup::text(&id.to_string()).to_string();
        Markup::trusted(format!(" <span class=\"sub\" title=\"{full}\">{}</span>", short(&full)))
    }
}

/// A name with the shortened id.
pub(crate) fn with_id(name: &str, id: impl Display) -> String {
    format!("{name} ({})", short(&id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_several_objects_have_ids() {
        let named = [("memstore_0AAAAAAAAA", "Notes"), ("memstore_0BBBBBBBBB", "notes ")];
        let shared = SharedNames::among(named.into_iter().chain([("memstore_0C", "Log"); 2]));
        assert_eq!(shared.text("Notes", "memstore_0AAAAAAAAA"), "Notes (memstore_…AAAAAA)");
        assert!(shared.id_of("notes ", "memstore_0BBBBBBBBB").as_str().contains(">memstore_…BBBBBB<"));
        assert_eq!((shared.text("Log", "memstore_0C").as_str(), shared.id_of("Log", 1).len()), ("Log", 0));
    }
}
