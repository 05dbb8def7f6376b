//! The results: a table for people and JSON for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::costs::Calls;
use super::load::{Measured, latency_ms};
use super::plan::{Layout, Scenario};
use super::scanner::ScannerFinding;

/// The results of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) keepsake: &'static str,
    pub(super) machine: Machine,
    pub(super) setup: Setup,
    pub(super) results: Vec<Finding>,
    /// The speed of the scanner for sensitive data.
    pub(super) scanner: Vec<ScannerFinding>,
}

/// The machine of the run.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    cores: usize,
    cpu: Option<String>,
    memory_bytes: Option<u64>,
    kernel: Option<String>,
    /// The load average of the last minute.
    pub(super) load_before: Option<f64>,
}

impl Machine {
    /// This machine, as far as `/proc` has information.
    pub(super) fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let field = |text: Option<String>, name: &str| {
            let text = text?;
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kibibytes = field(read("/proc/meminfo"), "MemTotal")
            .and_then(|total| total.split(' ').next()?.parse::<u64>().ok());
        Self {
            cores: cores(),
            cpu: field(read("/proc/cpuinfo"), "model name"),
            memory_bytes: kibibytes.map(|kibibytes| kibibytes * 1_024),
            kernel: read("/proc/sys/kernel/osrelease").map(|release| release.trim().to_owned()),
            load_before: read("/proc/loadavg").and_then(|loads| loads.split(' ').next()?.parse().ok()),
        }
    }
}

/// The number of cores that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The options of the run.
#[derive(Debug, Serialize)]
pub(super) struct Setup {
    /// `None` if only the server's URL was given.
    pub(super) index: Option<&'static str>,
    pub(super) blobs: Option<&'static str>,
    pub(super) connections: usize,
    pub(super) client_threads: usize,
    pub(super) memories: usize,
    pub(super) content_bytes: usize,
    /// Calls per second; `None`: a closed loop.
    pub(super) rate: Option<u32>,
    pub(super) rounds: usize,
    pub(super) warm_up_seconds: f64,
    pub(super) measured_seconds: f64,
    /// The text of `--note`.
    pub(super) note: Option<String>,
}

/// The results of one scenario with one layout.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    scenario: Scenario,
    layout: Layout,
    stores: usize,
    server: Summary,
    floor: Option<Summary>,
    /// The server's throughput divided by the floor's, per round.
    ratios: Vec<f64>,
    median_ratio: Option<f64>,
    /// The server's p99 divided by the floor's, the median of the rounds.
    median_p99_ratio: Option<f64>,
    bar: Option<f64>,
    meets_bar: Option<bool>,
}

/// The results of all rounds of one side.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) requests: u64,
    pub(super) failed: u64,
    /// The median of the rounds.
    pub(super) requests_per_second: f64,
    /// Latencies of all rounds together.
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    p99_9_ms: f64,
    max_ms: f64,
    /// CPU time of the process, without database and object store.
    pub(super) server_cpu_micros_per_request: Option<f64>,
    pub(super) database_cpu_micros_per_request: Option<f64>,
    pub(super) s3_cpu_micros_per_request: Option<f64>,
    client_cpu_micros_per_request: Option<f64>,
    /// Calls of the object store and the index that the server counted.
    s3_puts_per_request: Option<f64>,
    s3_gets_per_request: Option<f64>,
    index_calls_per_request: Option<f64>,
    pub(super) rounds: Vec<Round>,
}

/// The results of one round.
#[derive(Debug, Serialize)]
pub(super) struct Round {
    pub(super) requests_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Round {
    fn of(round: &Measured) -> Self {
        Self {
            requests_per_second: rounded(round.throughput()),
            p50_ms: latency_ms(&round.latency, 0.5),
            p99_ms: latency_ms(&round.latency, 0.99),
        }
    }
}

impl Summary {
    /// `None` without rounds.
    pub(super) fn of(rounds: &[Measured]) -> Option<Self> {
        let of_rounds: Vec<_> = rounds.iter().map(Round::of).collect();
        let rates: Vec<_> = of_rounds.iter().map(|round| round.requests_per_second).collect();
        let (first, others) = rounds.split_first()?;
        let mut all = first.clone();
        for round in others {
            all.follow(round);
        }
        let requests = all.throughput() * all.elapsed.as_secs_f64();
        let per_request = |amount: f64| Some(amount / requests).filter(|amount| amount.is_finite());
        let micros = |cpu: Option<Duration>| per_request(cpu?.as_secs_f64() * 1e6).map(rounded);
        #[expect(clippy::cast_precision_loss, reason = "no run makes 2^52 calls")]
        let calls = |count: fn(Calls) -> u64| per_request(all.costs.calls.map(count)? as f64);
        Some(Self {
            requests: all.latency.len(),
            failed: all.failed,
            requests_per_second: median(&rates)?,
            p50_ms: latency_ms(&all.latency, 0.5),
            p99_ms: latency_ms(&all.latency, 0.99),
            p99_9_ms: latency_ms(&all.latency, 0.999),
            max_ms: latency_ms(&all.latency, 1.0),
            server_cpu_micros_per_request: micros(all.costs.server_cpu),
            database_cpu_micros_per_request: micros(all.costs.database_cpu),
            s3_cpu_micros_per_request: micros(all.costs.s3_cpu),
            client_cpu_micros_per_request: micros(all.costs.client_cpu),
            s3_puts_per_request: calls(|calls| calls.s3_puts),
            s3_gets_per_request: calls(|calls| calls.s3_gets),
            index_calls_per_request: calls(|calls| calls.index),
            rounds: of_rounds,
        })
    }
}

impl Finding {
    /// Combines the rounds of one scenario with one layout.
    ///
    /// `floor` is empty, or has as many rounds as `server`, which has one or more.
    pub(super) fn of(
        scenario: Scenario,
        layout: Layout,
        stores: usize,
        server: &[Measured],
        floor: &[Measured],
    ) -> Option<Self> {
        let ratios_of = |figure: fn(&Measured) -> f64| -> Vec<f64> {
            let pairs = server.iter().zip(floor);
            pairs.map(|(server, floor)| figure(server) / figure(floor)).collect()
        };
        let ratios = ratios_of(Measured::throughput);
        let median_ratio = median(&ratios);
        let bar = scenario.bar(layout);
        Some(Self {
            scenario,
            layout,
            stores,
            server: Summary::of(server)?,
            floor: Summary::of(floor),
            meets_bar: bar.zip(median_ratio).map(|(bar, ratio)| ratio >= bar),
            median_ratio,
            median_p99_ratio: median(&ratios_of(|round| latency_ms(&round.latency, 0.99))),
            ratios,
            bar,
        })
    }
}

/// The rates of a scenario with something and without it, measured alternately.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    scenario: Scenario,
    with: Summary,
    without: Summary,
    /// The rate with it divided by that without it, per round.
    ratios: Vec<f64>,
    median_ratio: Option<f64>,
}

impl Compared {
    /// `None` without rounds.
    pub(super) fn of(scenario: Scenario, [with, without]: &[Vec<Measured>; 2]) -> Option<Self> {
        let rounds = with.iter().zip(without);
        let ratios: Vec<_> = rounds.map(|(with, without)| with.throughput() / without.throughput()).collect();
        Some(Self {
            scenario,
            with: Summary::of(with)?,
            without: Summary::of(without)?,
            median_ratio: median(&ratios),
            ratios,
        })
    }

    /// Writes a line beside the least ratio.
    pub(super) fn line(&self, f: &mut fmt::Formatter<'_>, what: &str, bar: f64) -> fmt::Result {
        let ratio = self.median_ratio.unwrap_or(f64::NAN);
        let rounds: Vec<_> = self.ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        writeln!(
            f,
            "{:<11} with {what} {:>9.0}/s  without {:>9.0}/s  ratio {ratio:.3} (bar {bar:.2}: {})  rounds {}",
            self.scenario.name(),
            self.with.requests_per_second,
            self.without.requests_per_second,
            verdict(ratio >= bar),
            rounds.join(" ")
        )
    }
}

/// Whether a bar is met, in words.
pub(super) const fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

pub(super) fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The median; the mean of the two middle values of an even number.
pub(super) fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    let lower = if sorted.len().is_multiple_of(2) { sorted[middle - 1] } else { upper };
    Some(f64::midpoint(lower, upper))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (machine, setup) = (&self.machine, &self.setup);
        write!(f, "keepsake {}, {} cores", self.keepsake, machine.cores)?;
        if let Some(cpu) = &machine.cpu {
            write!(f, " ({cpu})")?;
        }
        if let Some(bytes) = machine.memory_bytes {
            write!(f, ", {} GiB", bytes >> 30)?;
        }
        if let Some(load) = machine.load_before {
            write!(f, ", load before the run {load:.1}")?;
        }
        writeln!(f)?;
        if let (Some(index), Some(blobs)) = (setup.index, setup.blobs) {
            write!(f, "{index} + {blobs}, ")?;
        }
        write!(
            f,
            "{} connections, {} memories of {} bytes",
            setup.connections, setup.memories, setup.content_bytes
        )?;
        write!(
            f,
            "; {} rounds of {} s after {} s",
            setup.rounds, setup.measured_seconds, setup.warm_up_seconds
        )?;
        if let Some(note) = &setup.note {
            write!(f, "; {note}")?;
        }
        writeln!(f, "\n")?;
        writeln!(
            f,
            "{:<12} {:<20} {:<7} {:>9} {:>8} {:>8} {:>8} {:>8}  ratio",
            "scenario", "layout", "", "req/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU µs"
        )?;
        self.results.iter().try_for_each(|finding| write!(f, "{finding}"))?;
        self.scanner.iter().try_for_each(|finding| write!(f, "{finding}"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scenario, layout) = (self.scenario.name(), self.layout.title());
        write!(f, "{scenario:<12} {layout:<20} {:<7} {}", "server", self.server)?;
        if let Some(ratio) = self.median_ratio {
            write!(f, "  {ratio:.2}")?;
        }
        match (self.bar, self.meets_bar) {
            (Some(bar), Some(true)) => write!(f, " (bar {bar:.2}: met)")?,
            (Some(bar), Some(false)) => write!(f, " (bar {bar:.2}: MISSED)")?,
            _ => {}
        }
        writeln!(f)?;
        if let Some(floor) = &self.floor {
            let ratios: Vec<_> = self.ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
            writeln!(f, "{:<33} {:<7} {floor}  rounds {}", "", "floor", ratios.join(" "))?;
        }
        for (side, summary) in [("server", Some(&self.server)), ("floor", self.floor.as_ref())] {
            if let Some(failed) = summary.map(|summary| summary.failed).filter(|failed| *failed > 0) {
                writeln!(f, "{:<33} {failed} calls of the {side} FAILED", "")?;
            }
        }
        Ok(())
    }
}

/// One line's numbers, without a line end.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests_per_second, p50_ms, p99_ms, p99_9_ms, .. } = self;
        write!(f, "{requests_per_second:>9.0} {p50_ms:>8.2} {p99_ms:>8.2} {p99_9_ms:>8.2}")?;
        match self.server_cpu_micros_per_request {
            Some(micros) => write!(f, " {micros:>8.0}"),
            None => write!(f, " {:>8}", "-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }
}
