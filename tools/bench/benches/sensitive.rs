//! Measures the scanner, and for comparison a search for line breaks.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keepsake_core::sensitive::Scanner;

/// The default limit of a memory's size.
const TEXT_BYTES: usize = 100 << 10;

/// Sentences such as agents store.
const PROSE: &str = "The user prefers short answers and metric units. Deployments go out on Tuesdays, after the \
    tests passed; the password is kept in the vault, never here.\n- Kiel office: room 4.112, call before you come.\n\
    - The API key is rotated every 90 days (see https://wiki.kestrel.test/keys).\n\n";

/// Code such as agents store.
const CODE: &str = "pub fn next(&mut self) -> Option<Token> {\n    let token = self.tokens.get(self.position)?;\n    \
    self.position += 1;\n    if token.kind == Kind::Password { return None; } // task-local\n    \
    Some(Token { hash: \"9f86d081884c7d659a2feaa0c55ad015\", ..*token })\n}\n";

fn repeated(unit: &str) -> String {
    unit.repeat(TEXT_BYTES / unit.len() + 1)
}

fn texts() -> Vec<(&'static str, String)> {
    let random = "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    let secrets = format!(
        "# keys\nGITHUB_TOKEN=ghp_{random}\ndb: postgres://app:{random}@db.test/app\npassword: {random}\n\
         card 4111 1111 1111 1111, call before use\n\n"
    );
    vec![
        ("prose", repeated(PROSE)),
        ("code", repeated(CODE)),
        ("secrets", repeated(&secrets)),
        // Each of these texts has as many starts of secrets as possible.
        ("hostile/labels", repeated("password=")),
        ("hostile/short labels", repeated("pwd=a ")),
        ("hostile/prefixes", repeated("sk-aaaaaaaa ")),
        ("hostile/jwts", repeated("eyJ.")),
        ("hostile/urls", repeated("://a:")),
        ("hostile/digits", repeated("4539 ")),
        ("hostile/dots", repeated("a.bcdefg.")),
        ("hostile/keys", repeated("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n")),
    ]
}

fn scan(criterion: &mut Criterion) {
    let scanner = Scanner::default();
    let mut group = criterion.benchmark_group("sensitive");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for (name, text) in texts() {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_with_input(BenchmarkId::new("scan", name), &text, |bencher, text| {
            bencher.iter(|| scanner.scan(black_box(text)).len());
        });
        if !name.starts_with("hostile") {
            group.bench_with_input(BenchmarkId::new("floor: lines", name), &text, |bencher, text| {
                bencher.iter(|| black_box(text).lines().count());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, scan);
criterion_main!(benches);
