//! In which memories each term is, in one field: one list after another, and
//! what came since they were made.

use hashbrown::HashMap;

use super::dictionary::Posting;
use super::to_u32;

/// What may come before all lists are made anew, beside half of what they hold.
const MANY: usize = 4_096;

/// The memories that have each term.
#[derive(Default)]
pub(super) struct Lists {
    /// Where in `made` the list of each term begins, and the last one ends.
    starts: Vec<u32>,
    made: Vec<Posting>,
    /// What came since, by the term; of slots behind those in `made`.
    added: HashMap<u32, Vec<Posting>>,
    added_count: usize,
}

/// That a term is in a memory, before the lists are made.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) term: u32,
    pub(super) posting: Posting,
}

impl Lists {
    /// Makes the lists of so many terms from what is in the order of slots.
    pub(super) fn of(entries: &[Entry], terms: usize) -> Self {
        // Where each begins, one place to the right: there it ends once it is full.
        let mut starts = vec![0_u32; terms + 2];
        for entry in entries {
            starts[entry.term as usize + 2] += 1;
        }
        for place in 2..starts.len() {
            starts[place] += starts[place - 1];
        }
        let mut made = vec![Posting::default(); entries.len()];
        for entry in entries {
            let next = &mut starts[entry.term as usize + 1];
            made[*next as usize] = entry.posting;
            *next += 1;
        }
        starts.truncate(terms + 1);
        Self {
            starts,
            made,
            added: HashMap::new(),
            added_count: 0,
        }
    }

    /// Makes room for so many more terms and what they have together.
    pub(super) fn reserve(&mut self, terms: usize, postings: usize) {
        self.starts.reserve_exact(terms);
        self.made.reserve_exact(postings);
    }

    /// Makes the list of the term behind all others.
    pub(super) fn append(&mut self, list: impl Iterator<Item = Posting>) {
        self.made.extend(list);
        self.starts.push(to_u32(self.made.len()));
    }

    /// Adds to the list of one of so many terms; `posting` is of a slot behind
    /// all others.
    pub(super) fn add(&mut self, term: u32, posting: Posting) {
        self.added.entry(term).or_default().push(posting);
        self.added_count += 1;
    }

    /// Makes all lists anew once much came since, of so many terms.
    pub(super) fn settle(&mut self, terms: usize) {
        if self.added_count < self.made.len() / 2 + MANY {
            return;
        }
        let mut made = Vec::with_capacity(self.made.len() + self.added_count);
        let mut starts = Vec::with_capacity(terms + 1);
        for term in 0..to_u32(terms) {
            starts.push(to_u32(made.len()));
            made.extend(self.of_term(term));
        }
        starts.push(to_u32(made.len()));
        *self = Self {
            starts,
            made,
            ..Self::default()
        };
    }

    fn made_of(&self, term: u32) -> &[Posting] {
        let term = term as usize;
        match self.starts.get(term..term + 2) {
            Some([start, end]) => &self.made[*start as usize..*end as usize],
            _ => &[],
        }
    }

    fn added_of(&self, term: u32) -> &[Posting] {
        if self.added.is_empty() {
            return &[];
        }
        self.added.get(&term).map_or(&[], Vec::as_slice)
    }

    /// The list of a term, in the order of slots.
    pub(super) fn of_term(&self, term: u32) -> impl Iterator<Item = Posting> {
        (self.made_of(term).iter()).chain(self.added_of(term)).copied()
    }

    /// How many are in the list of a term.
    pub(super) fn len_of(&self, term: u32) -> usize {
        self.made_of(term).len() + self.added_of(term).len()
    }

    /// The posting of a term that is of a slot.
    pub(super) fn in_slot(&self, term: u32, slot: u32) -> Option<Posting> {
        [self.made_of(term), self.added_of(term)]
            .into_iter()
            .find_map(|list| {
                let place = list.binary_search_by_key(&slot, |posting| posting.slot);
                place.ok().map(|place| list[place])
            })
    }

    pub(super) fn size_bytes(&self) -> usize {
        let posting = size_of::<Posting>();
        // Lists that grow have room, and a place in the map.
        let added = self.added_count * 2 * posting + self.added.capacity() * 48;
        self.starts.capacity() * size_of::<u32>() + self.made.capacity() * posting + added
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Made at once, added to, or made anew meanwhile: the same lists.
        #[test]
        fn lists_hold_what_came(
            slots in proptest::collection::vec(proptest::collection::btree_set(0_u32..9, 0..6), 0..40),
            made in 0_usize..40,
            settled in 0_usize..40,
        ) {
            let made = made.min(slots.len());
            let entries = |slots: &[std::collections::BTreeSet<u32>], first: usize| -> Vec<Entry> {
                (first..).zip(slots)
                    .flat_map(|(slot, terms)| terms.iter().map(move |term| Entry {
                        term: *term,
                        posting: Posting::new(to_u32(slot), 1, slot),
                    }))
                    .collect()
            };
            let mut lists = Lists::of(&entries(&slots[..made], 0), 9);
            for (place, slot) in slots.iter().enumerate().skip(made) {
                for entry in entries(std::slice::from_ref(slot), place) {
                    lists.add(entry.term, entry.posting);
                }
                if place == settled {
                    // Whatever came counts as much here.
                    lists.added_count += lists.made.len() / 2 + MANY;
                    lists.settle(9);
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
