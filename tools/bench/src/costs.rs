//! The costs of calls: CPU time of each process, and calls of the object store and
//! the index, which the server counts.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use keepsake_blobs::BlobUrl;
use keepsake_config::{Failure, IndexUrl, Settings};
use secrecy::ExposeSecret;

use super::operator::Operator;
use super::process;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";
const COUNTED: &str = "_call_duration_seconds_count";

/// The processes of the database and the S3 server, if they run on this machine.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backends {
    database: Option<u32>,
    s3: Option<u32>,
    /// Whether content is in an object store, whose calls are counted.
    has_s3: bool,
}

impl Backends {
    /// The processes that listen on the ports of the configured URLs.
    pub(super) fn of(settings: &Settings) -> Self {
        let database = match &settings.index.url {
            IndexUrl::Postgres(url) => local_port(url.expose_secret()),
            IndexUrl::Sqlite { .. } => None,
        };
        let has_s3 = matches!(settings.blobs.url, BlobUrl::S3 { .. });
        let endpoint = settings.blobs.s3.endpoint.as_deref().filter(|_| has_s3);
        Self {
            database: database.and_then(listener),
            s3: endpoint.and_then(local_port).and_then(listener),
            has_s3,
        }
    }
}

/// The port of a URL, if its host is this machine.
fn local_port(url: &str) -> Option<u16> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let (host, port) = authority.rsplit('@').next()?.rsplit_once(':')?;
    matches!(host, "127.0.0.1" | "localhost").then(|| port.parse().ok())?
}

/// The process that listens on a port; `None` without the right to see it.
fn listener(port: u16) -> Option<u32> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let is_wanted = u16::from_str_radix(local_port, 16) == Ok(port) && fields.get(3) == Some(&LISTENS);
        is_wanted.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    })?;
    let socket = Path::new(&inode);
    let holders: Vec<_> = process_ids().into_iter().filter(|pid| holds(*pid, socket)).collect();
    // Postgres's children inherit the socket.
    let is_inherited = |pid: u32| process::stat(pid).is_some_and(|stat| holders.contains(&stat.parent));
    holders.iter().copied().find(|pid| !is_inherited(*pid))
}

fn holds(pid: u32, socket: &Path) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == socket))
}

fn process_ids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The CPU time of a process and its descendants, running and ended.
fn tree_cpu_time(root: u32) -> Option<Duration> {
    let stats: HashMap<u32, process::Stat> =
        process_ids().into_iter().filter_map(|pid| Some((pid, process::stat(pid)?))).collect();
    let belongs = |mut pid: u32| {
        while let Some(stat) = stats.get(&pid) {
            if pid == root {
                return true;
            }
            pid = stat.parent;
        }
        false
    };
    stats.get(&root)?;
    Some(stats.iter().filter(|(pid, _)| belongs(**pid)).map(|(_, stat)| stat.own + stat.ended_children).sum())
}

/// What a measured process and its backends used up to an instant, or between two.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Costs {
    pub(super) server_cpu: Option<Duration>,
    pub(super) database_cpu: Option<Duration>,
    pub(super) s3_cpu: Option<Duration>,
    /// The load generator's.
    pub(super) client_cpu: Option<Duration>,
    pub(super) calls: Option<Calls>,
}

/// The calls that a server made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    pub(super) s3_puts: u64,
    pub(super) s3_gets: u64,
    pub(super) index: u64,
}

impl Costs {
    /// Up to now.
    pub(super) async fn now(server: Option<u32>, backends: Backends, operator: Option<Operator>) -> Self {
        let calls = match operator {
            Some(operator) => operator.metrics().await.ok().map(|text| Calls::of(&text, backends.has_s3)),
            None => None,
        };
        Self {
            server_cpu: server.and_then(process::cpu_time),
            database_cpu: backends.database.and_then(tree_cpu_time),
            s3_cpu: backends.s3.and_then(tree_cpu_time),
            client_cpu: process::cpu_time(std::process::id()),
            calls,
        }
    }

    /// Those since an earlier instant.
    pub(super) fn since(self, before: Self) -> Self {
        self.with(before, Duration::saturating_sub, u64::saturating_sub)
    }

    /// The sum of two.
    pub(super) fn plus(self, other: Self) -> Self {
        self.with(other, |a, b| a + b, |a, b| a + b)
    }

    fn with(
        self,
        other: Self,
        times: impl Fn(Duration, Duration) -> Duration,
        counts: impl Fn(u64, u64) -> u64,
    ) -> Self {
        let time = |a: Option<Duration>, b: Option<Duration>| Some(times(a?, b?));
        let calls = self.calls.zip(other.calls).map(|(a, b)| Calls {
            s3_puts: counts(a.s3_puts, b.s3_puts),
            s3_gets: counts(a.s3_gets, b.s3_gets),
            index: counts(a.index, b.index),
        });
        Self {
            server_cpu: time(self.server_cpu, other.server_cpu),
            database_cpu: time(self.database_cpu, other.database_cpu),
            s3_cpu: time(self.s3_cpu, other.s3_cpu),
            client_cpu: time(self.client_cpu, other.client_cpu),
            calls,
        }
    }
}

impl Calls {
    /// Reads the server's metrics.
    fn of(metrics: &str, has_s3: bool) -> Self {
        let mut calls = Self::default();
        for (name, labels, value) in samples(metrics) {
            let is_s3 = has_s3 && name == format!("keepsake_blob{COUNTED}");
            if is_s3 && labels.contains("call=\"put\"") {
                calls.s3_puts += value;
            } else if is_s3 && labels.contains("call=\"get\"") {
                calls.s3_gets += value;
            } else if name == format!("keepsake_index{COUNTED}") {
                calls.index += value;
            }
        }
        calls
    }
}

/// Names, labels and whole values of the lines of a metrics page.
pub(super) fn samples(metrics: &str) -> impl Iterator<Item = (&str, &str, u64)> {
    metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        Some((name, labels, value.parse().ok()?))
    })
}

/// The passages whose vectors a server has stored since its start.
///
/// # Errors
/// [`Failure`] if the server does not answer.
pub(super) async fn embedded_passages(operator: Operator) -> Result<u64, Failure> {
    let metrics = operator.metrics().await?;
    let counts = samples(&metrics).filter(|(name, ..)| *name == "keepsake_embedding_chunks_total");
    Ok(counts.map(|(_, _, count)| count).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_of_this_machine_are_searched() {
        assert_eq!(local_port("postgres://u:p@127.0.0.1:5432/db?x=1"), Some(5_432));
        assert_eq!(local_port("http://localhost:9000"), Some(9_000));
        assert_eq!(local_port("http://minio:9000/x"), None);
        assert_eq!(local_port("postgres://db/x"), None);
    }
}
