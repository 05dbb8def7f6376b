//! Random test runs that can be repeated.

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The variable that repeats a run.
const VARIABLE: &str = "KEEPSAKE_TEST_SEED";
/// The variable that multiplies the cases of a run.
const TIMES: &str = "KEEPSAKE_TEST_CASES_TIMES";

/// The seed of one random test run.
///
/// A run that fails prints the seed with the variable that repeats it.
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// The seed that the environment names, else a new one.
    ///
    /// # Panics
    /// When the variable is not a number.
    pub fn new() -> Self {
        let Ok(text) = std::env::var(VARIABLE) else {
            let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
            return Self(seed);
        };
        Self(text.parse().unwrap_or_else(|_| {
            panic!("{VARIABLE} must be a seed that a failed run printed, but is `{text}`")
        }))
    }

    /// A runner that makes the same cases for the same seed; as many times more as the
    /// environment says.
    ///
    /// # Panics
    /// When the variable is not a number.
    pub fn runner(&self, mut config: Config) -> TestRunner {
        if let Ok(times) = std::env::var(TIMES) {
            let times: u32 =
                times.parse().unwrap_or_else(|_| panic!("{TIMES} must be a number, but is `{times}`"));
            config.cases *= times;
        }
        // The algorithm is named: another default must not change what a seed means.
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        TestRunner::new_with_rng(config, random)
    }
}

impl Default for Seed {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this run was random: repeat it with {VARIABLE}={}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    use super::*;

    fn cases(seed: u64) -> Vec<u64> {
        let mut runner = Seed(seed).runner(Config::default());
        let case = |_| any::<u64>().new_tree(&mut runner).unwrap().current();
        (0..5).map(case).collect()
    }

    #[test]
    fn same_seed_makes_the_same_cases() {
        assert_eq!(cases(7), cases(7));
        assert_ne!(cases(7), cases(8));
    }
}
