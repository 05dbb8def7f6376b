//! The clock of a process, which a test sets while the process runs.

use std::path::PathBuf;

use crate::keepsake_server::ServerCommand;
use crate::required_variable;

const FAKETIME: &str = "KEEPSAKE_TEST_FAKETIME";

/// A file that says how far the clock of a process is off.
#[derive(Debug)]
pub struct ProcessClock(PathBuf);

impl ProcessClock {
    pub fn new(file: PathBuf) -> Self {
        let clock = Self(file);
        clock.set(0);
        clock
    }

    /// The same server with this clock. Its monotonic clock is the machine's.
    pub fn of(&self, command: ServerCommand) -> ServerCommand {
        let library = required_variable(FAKETIME, "the path of libfaketimeMT.so.1");
        command
            .env("LD_PRELOAD", &library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.0.to_string_lossy())
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    /// Sets the clock so many seconds off, also that of a running process.
    pub fn set(&self, seconds: i64) {
        // The library reads the file for each look at the clock: it must never be half written.
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).expect("the clock's file cannot be written");
        std::fs::rename(&new, &self.0).expect("the clock's file cannot be replaced");
    }
}
