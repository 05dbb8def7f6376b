//! Pseudo-random numbers and words, shared with the benchmark of `keepsake-search`.

/// Pseudo-random numbers by xorshift, which is random enough and cheap.
pub(crate) struct Numbers(u64);

impl Numbers {
    /// The same numbers in every run for the same odd seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, distributed like the frequency of words in texts.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number below a small limit is drawn"
    )]
    pub(crate) fn skewed(&mut self, limit: u64) -> u64 {
        let fraction = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        ((limit as f64).powf(fraction) - 1.0) as u64
    }
}

/// An invented word of syllables for a number.
pub(crate) fn word(number: u64) -> String {
    const SYLLABLES: [&str; 32] = [
        "ka", "ter", "mo", "lin", "des", "pro", "ser", "ver", "ing", "ed", "con", "fig", "re", "try",
        "count", "log", "me", "no", "ta", "si", "ble", "er", "ment", "ro", "un", "do", "le", "par", "ex",
        "it", "al", "work",
    ];
    let mut text = String::new();
    let mut rest = number + 1;
    while rest > 0 {
        text.push_str(SYLLABLES[usize::try_from(rest % 32).unwrap_or_default()]);
        rest /= 32;
    }
    text
}
