//! The processor time of a test's work, which other processes hardly change.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time that the processor spends on `work` in this thread.
pub(crate) fn cpu_time_of<T>(work: impl FnOnce() -> T) -> Duration {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let before = used();
    std::hint::black_box(work());
    used().saturating_sub(before)
}
