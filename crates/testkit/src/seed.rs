//! Random test runs that can be repeated.

use std::str::FromStr;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const VARIABLE: &str = "KEEPSAKE_TEST_SEED";
/// Multiplies the cases of a run.
const TIMES: &str = "KEEPSAKE_TEST_CASES_TIMES";

/// The seed of one random test run.
///
/// A run that fails prints the seed with the variable that repeats it.
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// The seed that the environment names, else a new one.
    pub fn new() -> Self {
        let named = number(VARIABLE, "a seed that a failed run printed");
        Self(named.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0))
    }

    /// A runner that makes the same cases for the same seed; as many times more as the
    /// environment says.
    pub fn runner(&self, mut config: Config) -> TestRunner {
        config.cases *= cases_times();
        // The algorithm is named: another default must not change what a seed means.
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        TestRunner::new_with_rng(config, random)
    }
}

/// By how much the environment multiplies the cases of a random run.
pub fn cases_times() -> u32 {
    number(TIMES, "a number").unwrap_or(1)
}

/// The value of a variable; `None`: it is not set.
fn number<N: FromStr>(variable: &str, what: &str) -> Option<N> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be {what}, but is `{text}`")))
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
