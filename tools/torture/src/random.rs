//! Random numbers that a seed repeats.

/// `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the items; `None`: there are none.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let length = u64::try_from(items.len()).unwrap();
        items.get(usize::try_from(self.below(length)).unwrap())
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = self.below(u64::try_from(end + 1).unwrap());
            items.swap(end, usize::try_from(other).unwrap());
        }
    }

    /// Another sequence.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// A seed that no run had before.
pub(crate) fn fresh_seed() -> u64 {
    u64::from(uuid::Uuid::new_v4().as_fields().0)
}
