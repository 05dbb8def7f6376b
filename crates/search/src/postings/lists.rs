//! The posting lists of one field: built lists, and postings added later.

use hashbrown::HashMap;

use super::dictionary::Posting;
use super::to_u32;

/// Later postings that force a rebuild of the lists, in addition to half of the
/// built postings.
const MAX_LATER_POSTINGS: usize = 4_096;

#[derive(Default)]
pub(super) struct Lists {
    /// The start of each term's list in `built`, and the end of the last list.
    starts: Vec<u32>,
    built: Vec<Posting>,
    /// Later postings by term; their slots follow the slots in `built`.
    added: HashMap<u32, Vec<Posting>>,
    added_count: usize,
}

/// An occurrence of a term in a memory, before the lists are built.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) term: u32,
    pub(super) posting: Posting,
}

impl Lists {
    /// Builds the lists of `terms` terms from entries in slot order.
    pub(super) fn of(entries: &[Entry], terms: usize) -> Self {
        // Each start is stored one place to the right; it becomes the end when the list
        // is filled.
        let mut starts = vec![0_u32; terms + 2];
        for entry in entries {
            starts[entry.term as usize + 2] += 1;
        }
        for place in 2..starts.len() {
            starts[place] += starts[place - 1];
        }
        let mut built = vec![Posting::default(); entries.len()];
        for entry in entries {
            let next = &mut starts[entry.term as usize + 1];
            built[*next as usize] = entry.posting;
            *next += 1;
        }
        starts.truncate(terms + 1);
        Self { starts, built, added: HashMap::new(), added_count: 0 }
    }

    /// Reserves room for further terms and their postings.
    pub(super) fn reserve(&mut self, terms: usize, postings: usize) {
        self.starts.reserve_exact(terms);
        self.built.reserve_exact(postings);
    }

    /// Appends the list of a new last term.
    pub(super) fn append(&mut self, list: impl Iterator<Item = Posting>) {
        self.built.extend(list);
        self.starts.push(to_u32(self.built.len()));
    }

    /// Adds a posting to the list of a term; its slot must follow all earlier slots.
    pub(super) fn add(&mut self, term: u32, posting: Posting) {
        self.added.entry(term).or_default().push(posting);
        self.added_count += 1;
    }

    /// Rebuilds the lists of `terms` terms if there are many later postings.
    pub(super) fn merge_later_postings(&mut self, terms: usize) {
        if self.added_count < self.built.len() / 2 + MAX_LATER_POSTINGS {
            return;
        }
        let mut built = Vec::with_capacity(self.built.len() + self.added_count);
        let mut starts = Vec::with_capacity(terms + 1);
        for term in 0..to_u32(terms) {
            starts.push(to_u32(built.len()));
            built.extend(self.of_term(term));
        }
        starts.push(to_u32(built.len()));
        *self = Self { starts, built, ..Self::default() };
    }

    fn built_of(&self, term: u32) -> &[Posting] {
        let term = term as usize;
        match self.starts.get(term..term + 2) {
            Some([start, end]) => &self.built[*start as usize..*end as usize],
            _ => &[],
        }
    }

    fn added_of(&self, term: u32) -> &[Posting] {
        if self.added.is_empty() {
            return &[];
        }
        self.added.get(&term).map_or(&[], Vec::as_slice)
    }

    /// The list of a term, in slot order.
    pub(super) fn of_term(&self, term: u32) -> impl Iterator<Item = Posting> {
        (self.built_of(term).iter()).chain(self.added_of(term)).copied()
    }

    pub(super) fn len_of(&self, term: u32) -> usize {
        self.built_of(term).len() + self.added_of(term).len()
    }

    pub(super) fn in_slot(&self, term: u32, slot: u32) -> Option<Posting> {
        [self.built_of(term), self.added_of(term)].into_iter().find_map(|list| {
            let place = list.binary_search_by_key(&slot, |posting| posting.slot);
            place.ok().map(|place| list[place])
        })
    }

    pub(super) fn size_bytes(&self) -> usize {
        let posting = size_of::<Posting>();
        // Growing lists have spare capacity, and an entry in the map.
        let added = self.added_count * 2 * posting + self.added.capacity() * 48;
        self.starts.capacity() * size_of::<u32>() + self.built.capacity() * posting + added
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Lists are equal whether they are built at once, extended, or rebuilt in
        /// between.
        #[test]
        fn lists_equal_however_they_are_built(
            slots in proptest::collection::vec(proptest::collection::btree_set(0_u32..9, 0..6), 0..40),
            built in 0_usize..40,
            merge_at in 0_usize..40,
        ) {
            let built = built.min(slots.len());
            let entries = |slots: &[std::collections::BTreeSet<u32>], first: usize| -> Vec<Entry> {
                (first..).zip(slots)
                    .flat_map(|(slot, terms)| terms.iter().map(move |term| Entry {
                        term: *term,
                        posting: Posting::new(to_u32(slot), 1, slot),
                    }))
                    .collect()
            };
            let mut lists = Lists::of(&entries(&slots[..built], 0), 9);
            for (place, slot) in slots.iter().enumerate().skip(built) {
                for entry in entries(std::slice::from_ref(slot), place) {
                    lists.add(entry.term, entry.posting);
                }
                if place == merge_at {
                    // Counts extra postings, to force a rebuild.
                    lists.added_count += lists.built.len() / 2 + MAX_LATER_POSTINGS;
                    lists.merge_later_postings(9);
                }
            }
            for term in 0..9 {
                let expected: Vec<u32> = (0..)
                    .zip(&slots)
                    .filter(|(_, terms)| terms.contains(&term))
                    .map(|(slot, _)| slot)
                    .collect();
                let found: Vec<u32> = lists.of_term(term).map(|posting| posting.slot).collect();
                prop_assert_eq!(lists.len_of(term), expected.len());
                for slot in 0..40 {
                    prop_assert_eq!(lists.in_slot(term, slot).is_some(), expected.contains(&slot));
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}
