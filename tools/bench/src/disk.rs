//! Flushes of the disk without a server: a long one explains a long call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use keepsake_config::{Failure, Settings};
use tokio::task::JoinHandle;

use super::load::{Latencies, histogram, record};
use super::settings::IndexPlace;

const BLOCK: [u8; 4096] = [0x5a; 4096];
/// Blocks of the file. Only the first flushes make it longer.
const BLOCKS: u64 = 64;
/// The rest between two flushes, so that they hardly delay others.
const REST: Duration = Duration::from_millis(50);

/// A file without a name on the disk of SQLite's file, or else of temporary files, where a
/// Postgres of a test run is.
#[derive(Debug)]
pub(super) struct Disk(File);

impl Disk {
    /// # Errors
    /// [`Failure`] if the file cannot be made.
    pub(super) fn of(settings: &Settings) -> Result<Self, Failure> {
        let folder = match IndexPlace::of(settings) {
            IndexPlace::Sqlite { file } => file.parent().map(ToOwned::to_owned),
            IndexPlace::Postgres { .. } => None,
        };
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        let file = tempfile::tempfile_in(&folder);
        file.map(Self).map_err(Failure::of(format_args!("no file can be made in {}", folder.display())))
    }

    /// Writes and flushes one block after another on a thread of its own.
    pub(super) fn start(self) -> Flushes {
        let is_ended = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&is_ended);
        let thread = tokio::task::spawn_blocking(move || self.flush_until(&ended));
        Flushes { is_ended, thread }
    }

    fn flush_until(&self, ended: &AtomicBool) -> Result<Histogram<u64>, Failure> {
        let mut latency = histogram()?;
        for block in (0..BLOCKS).cycle() {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            record(&mut latency, self.flush(block).map_err(Failure::of("the disk cannot be flushed"))?);
            thread::sleep(REST);
        }
        Ok(latency)
    }

    fn flush(&self, block: u64) -> io::Result<Duration> {
        let offset = block * u64::try_from(BLOCK.len()).unwrap_or_default();
        self.0.write_all_at(&BLOCK, offset)?;
        let began_at = Instant::now();
        self.0.sync_data()?;
        Ok(began_at.elapsed())
    }
}

/// Flushes that go on until they are ended.
#[derive(Debug)]
pub(super) struct Flushes {
    is_ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<Histogram<u64>, Failure>>,
}

impl Flushes {
    /// # Errors
    /// [`Failure`] of the disk.
    pub(super) async fn end(mut self) -> Result<Latencies, Failure> {
        self.is_ended.store(true, Ordering::Relaxed);
        let flushed = (&mut self.thread).await.map_err(Failure::of("the disk cannot be flushed"))?;
        Ok(Latencies::of(&flushed?))
    }
}

impl Drop for Flushes {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }
}
