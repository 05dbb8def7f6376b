//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::client::Counts;
use super::fleet::Pair;

/// The longest time to full service after a fault.
pub(crate) const RECOVERY_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Clone)]
pub(crate) struct Faults {
    pub(crate) by_kind: BTreeMap<String, Recoveries>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Recoveries {
    pub(crate) count: u64,
    pub(crate) longest: Duration,
    /// Faults after which recovery took longer than [`RECOVERY_LIMIT`].
    pub(crate) too_long: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, kind: &str, recovery: Duration) {
        let recoveries = self.by_kind.entry(kind.to_owned()).or_default();
        recoveries.count += 1;
        recoveries.longest = recoveries.longest.max(recovery);
        recoveries.too_long += u64::from(recovery > RECOVERY_LIMIT);
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_kind.values().map(|kind| kind.count).sum()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.by_kind.values().map(|kind| kind.longest).max().unwrap_or_default()
    }

    pub(crate) fn too_long(&self) -> u64 {
        self.by_kind.values().map(|kind| kind.too_long).sum()
    }
}

pub(crate) fn text(pair: Pair, seed: u64, took: Duration, counts: &Counts, faults: &Faults) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| writeln!(text, "  {name:<28} {value}").unwrap();
    line("pair", format!("{pair:?}"));
    line("seed", seed.to_string());
    line("time", format!("{:.0} s", took.as_secs_f64()));
    line("operations", counts.operations.to_string());
    line("changes", format!("{} done, {} refused, {} unknown", counts.done, counts.refused, counts.unknown));
    line("contents read", format!("{} answered, {} not", counts.reads, counts.unread));
    line("attempts", format!("{}, {} of them cancelled by the client", counts.attempts, counts.cancelled));
    line("statuses", format!("{:?}", counts.statuses));
    line("exports beside renames", format!("{} whole, {} failed", counts.exports, counts.failed_exports));
    let (slowest, what) = &counts.slowest;
    line("slowest answer", format!("{}, {what}", seconds(*slowest)));
    line("faults", (faults.count() + counts.cancelled).to_string());
    line("  cancelled requests", counts.cancelled.to_string());
    for (kind, recoveries) in &faults.by_kind {
        let longest = seconds(recoveries.longest);
        line(&format!("  {kind}"), format!("{}, full service within {longest}", recoveries.count));
    }
    line("longest time to full service", seconds(faults.longest()));
    line("recoveries over 15 s", faults.too_long().to_string());
    line("violations", counts.violations.len().to_string());
    text
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}
