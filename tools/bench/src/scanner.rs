//! The speed of the scanner for sensitive data, on one core.
//!
//! For comparison, it alternately measures finding the lines of the same text,
//! which is about the minimum for reading every byte.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use keepsake_core::sensitive::Scanner;
use serde::Serialize;

/// The default maximum size of a memory.
const TEXT_BYTES: usize = 100 << 10;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(50);

/// Sentences of the kind that agents write, with words that resemble secrets.
const PROSE: &str = "The user prefers short answers and metric units. Deployments go out on Tuesdays, after the \
    tests passed; the password is kept in the vault, never here.\n- Kiel office: room 4.112, call before you come.\n\
    - The API key is rotated every 90 days (see https://wiki.kestrel.test/keys).\n\n";

/// Code of the kind that agents write.
const CODE: &str = "pub fn next(&mut self) -> Option<Token> {\n    let token = self.tokens.get(self.position)?;\n    \
    self.position += 1;\n    if token.kind == Kind::Password { return None; } // task-local\n    \
    Some(Token { hash: \"9f86d081884c7d659a2feaa0c55ad015\", ..*token })\n}\n";

/// The scan speed for one kind of text.
#[derive(Debug, Serialize)]
pub(super) struct ScannerFinding {
    text: &'static str,
    megabytes_per_second: f64,
    floor_megabytes_per_second: f64,
}

/// Measures each kind of text.
pub(super) fn measure() -> Vec<ScannerFinding> {
    // Many findings: a secret after each label.
    let random = "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    let findings =
        format!("GITHUB_TOKEN=ghp_{random}\ndb: postgres://app:{random}@db.test/app\npassword: {random}\n\n");
    let scanner = Scanner::default();
    let kinds = [("prose", PROSE), ("code", CODE), ("secrets", findings.as_str())];
    let measured = |(name, unit): (&'static str, &str)| {
        let text = unit.repeat(TEXT_BYTES / unit.len() + 1);
        let (mut best, mut floor) = (0.0_f64, 0.0_f64);
        for _ in 0..ROUNDS {
            best = best.max(rate(&text, |text| scanner.scan(text).len()));
            floor = floor.max(rate(&text, |text| text.lines().count()));
        }
        ScannerFinding {
            text: name,
            megabytes_per_second: best.round(),
            floor_megabytes_per_second: floor.round(),
        }
    };
    kinds.map(measured).into()
}

/// The rate of one round in megabytes per second.
fn rate(text: &str, work: impl Fn(&str) -> usize) -> f64 {
    let start = Instant::now();
    let mut megabytes = 0.0;
    while start.elapsed() < ROUND {
        black_box(work(black_box(text)));
        megabytes += f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX)) / 1e6;
    }
    megabytes / start.elapsed().as_secs_f64()
}

impl fmt::Display for ScannerFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, megabytes_per_second, floor_megabytes_per_second } = self;
        writeln!(
            f,
            "{:<12} {text:<20} {megabytes_per_second:.0} MB/s on one core, floor (lines) \
             {floor_megabytes_per_second:.0} MB/s",
            "scanner"
        )
    }
}
