//! When each version can have been committed, and the state in between.
//!
//! A version has a point in time at which it took effect: not before its call
//! began, not after it was acknowledged. The points increase with the commit
//! order. A read between two versions of its target adds a bound to each of
//! them. The history is linearizable if and only if points exist that keep all
//! bounds, which is so if no lower bound of an earlier version is above an upper
//! bound of a later one.

use std::collections::BTreeMap;
use std::time::Duration;

use keepsake_core::ContentHash;

use super::{Interval, ObservedMemory, Read, Rule, Target, Violation};

/// What a path or an id shows from one version on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    /// The content; `None`: it was redacted, and no client has logged it.
    Live(Option<Content>),
}

/// A content and its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    text: String,
    sha256: String,
}

impl State {
    pub(super) fn live(content: Option<&str>) -> Self {
        Self::Live(content.map(|text| Content {
            text: text.to_owned(),
            sha256: ContentHash::of(text.as_bytes()).to_string(),
        }))
    }
}

/// The points in time at which versions can have taken effect.
#[derive(Debug)]
pub(super) struct Timeline {
    lower: Vec<Duration>,
    upper: Vec<Duration>,
    /// The call or the read that each bound is from.
    reasons: Vec<[String; 2]>,
    registers: BTreeMap<Target, Vec<(usize, State)>>,
}

impl Timeline {
    /// Without any bound, for so many versions.
    pub(super) fn new(versions: usize) -> Self {
        Self {
            lower: vec![Duration::ZERO; versions],
            upper: vec![Duration::MAX; versions],
            reasons: vec![<_>::default(); versions],
            registers: BTreeMap::new(),
        }
    }

    /// Notes what a target shows from a version on; in commit order.
    pub(super) fn record(&mut self, target: Target, version: usize, state: State) {
        self.registers.entry(target).or_default().push((version, state));
    }

    /// The version took effect while its call was under way.
    pub(super) fn bound(
        &mut self,
        version: usize,
        began: Duration,
        acknowledged: Option<Duration>,
        reason: impl Fn() -> String,
    ) {
        if began > self.lower[version] {
            self.lower[version] = began;
            self.reasons[version][0] = reason();
        }
        if let Some(at) = acknowledged
            && at < self.upper[version]
        {
            self.upper[version] = at;
            self.reasons[version][1] = reason();
        }
    }

    /// The bounds as the order of the versions narrows them.
    fn narrowed(&self) -> (Vec<Duration>, Vec<Duration>) {
        let (mut lower, mut upper) = (self.lower.clone(), self.upper.clone());
        for version in 1..lower.len() {
            lower[version] = lower[version].max(lower[version - 1]);
        }
        for version in (1..upper.len()).rev() {
            upper[version - 1] = upper[version - 1].min(upper[version]);
        }
        (lower, upper)
    }

    /// The interval in which a version took effect, for choosing its call.
    pub(super) fn window(&self, version: usize) -> Interval {
        let began = self.lower[..=version].iter().max().copied().unwrap_or_default();
        let ended = self.upper[version..].iter().min().copied().unwrap_or(Duration::MAX);
        Interval { began, ended }
    }

    /// Compares reads with the states during them, and adds their bounds.
    pub(super) fn add_reads(&mut self, reads: &[Read], violations: &mut Vec<Violation>) {
        let (lower, upper) = self.narrowed();
        for read in reads {
            let states = self.registers.get(&read.target).map_or(&[][..], Vec::as_slice);
            let positions = positions_of(&read.saw, states);
            let possible: Vec<_> = positions
                .iter()
                .copied()
                .filter(|&(version, next)| {
                    version.is_none_or(|version| lower[version] <= read.at.ended)
                        && next.is_none_or(|next| upper[next] >= read.at.began)
                })
                .collect();
            match (&*possible, positions.is_empty()) {
                ([], is_unknown) => violations.push(not_current(read, is_unknown)),
                ([(version, next)], _) => {
                    let reason = || format!("{read:?}");
                    if let Some(version) = *version {
                        self.bound(version, Duration::ZERO, Some(read.at.ended), reason);
                    }
                    if let Some(next) = *next {
                        self.bound(next, read.at.began, None, reason);
                    }
                }
                // The same content several times: any of them explains the read.
                _ => {}
            }
        }
    }

    /// Reports where no points in time fit all bounds.
    pub(super) fn check_order(&self, describe: impl Fn(usize) -> String, violations: &mut Vec<Violation>) {
        let mut latest: Option<usize> = None;
        for version in 0..self.lower.len() {
            if latest.is_none_or(|latest| self.lower[version] > self.lower[latest]) {
                latest = Some(version);
            }
            let Some(earlier) = latest.filter(|&latest| self.lower[latest] > self.upper[version]) else {
                continue;
            };
            violations.push(Violation {
                rule: Rule::RealTimeOrder,
                detail: format!(
                    "{} took effect at {:?} or later ({}), {} in the order after it at {:?} or earlier ({})",
                    describe(earlier),
                    self.lower[earlier],
                    self.reasons[earlier][0],
                    describe(version),
                    self.upper[version],
                    self.reasons[version][1],
                ),
            });
        }
    }
}

/// Each place in a register that shows this, with the version that ends it.
fn positions_of(saw: &ObservedMemory, states: &[(usize, State)]) -> Vec<(Option<usize>, Option<usize>)> {
    let before =
        (*saw == ObservedMemory::Absent).then(|| (None, states.first().map(|(version, _)| *version)));
    let after = states.iter().enumerate().filter(|(_, (_, state))| shows(state, saw));
    let after = after.map(|(at, (version, _))| (Some(*version), states.get(at + 1).map(|(next, _)| *next)));
    before.into_iter().chain(after).collect()
}

fn shows(state: &State, saw: &ObservedMemory) -> bool {
    match (state, saw) {
        (State::Absent, ObservedMemory::Absent)
        | (State::Live(None), ObservedMemory::Content(_) | ObservedMemory::Sha256(_)) => true,
        (State::Live(Some(content)), ObservedMemory::Content(seen)) => content.text == *seen,
        (State::Live(Some(content)), ObservedMemory::Sha256(seen)) => content.sha256 == *seen,
        (State::Absent, ObservedMemory::Content(_) | ObservedMemory::Sha256(_))
        | (State::Live(_), ObservedMemory::Absent) => false,
    }
}

fn not_current(read: &Read, is_unknown: bool) -> Violation {
    let why = if is_unknown { "which no version has" } else { "which was not current then" };
    Violation {
        rule: Rule::ReadIsCurrent,
        detail: format!("a read of {:?} at {:?} returned {:?}, {why}", read.target, read.at, read.saw),
    }
}
