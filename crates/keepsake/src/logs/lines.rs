//! Lines for stderr. A thread writes all waiting lines with one call: a call for each
//! line would be a large part of the work of a short request.

use std::io::{self, Write};
use std::mem;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long lines are gathered before they are written. A process that is killed loses
/// the lines of this time.
const GATHERED_FOR: Duration = Duration::from_millis(5);
/// Above this number of waiting bytes, the thread that adds a line writes all lines and
/// waits for stderr.
const MAX_WAITING_BYTES: usize = 1 << 20;

static LINES: Lines =
    Lines { waiting: Mutex::new(Vec::new()), arrived: Condvar::new(), writing: Mutex::new(()) };

struct Lines {
    waiting: Mutex<Vec<u8>>,
    arrived: Condvar,
    /// Held from the time when lines are taken until they are written, so that they stay
    /// in order.
    writing: Mutex<()>,
}

impl Lines {
    fn write_all(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let lines = mem::take(&mut *self.waiting.lock());
        io::stderr().write_all(&lines)
    }
}

/// Starts the thread that writes. Without it, every line is written at once.
pub(super) fn start() -> LogWriter {
    let write = || {
        loop {
            let mut waiting = LINES.waiting.lock();
            while waiting.is_empty() {
                LINES.arrived.wait(&mut waiting);
            }
            drop(waiting);
            thread::sleep(GATHERED_FOR);
            // An error cannot be reported when stderr is closed.
            let _ = LINES.write_all();
        }
    };
    let thread = thread::Builder::new().name("log".to_owned()).spawn(write);
    LogWriter { is_started: thread.is_ok() }
}

/// Writes the waiting lines; called before the process ends.
pub(crate) fn flush() {
    let _ = LINES.write_all();
}

/// Where the layer that formats lines writes them.
pub(super) struct LogWriter {
    is_started: bool,
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { is_urgent: !self.is_started }
    }

    /// A warning may be the last line of the process, and is written at once.
    fn make_writer_for(&self, metadata: &Metadata<'_>) -> Line {
        Line { is_urgent: !self.is_started || *metadata.level() <= Level::WARN }
    }
}

/// The writer of one line, which is written in one call.
pub(super) struct Line {
    is_urgent: bool,
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (was_empty, bytes) = {
            let mut waiting = LINES.waiting.lock();
            let was_empty = waiting.is_empty();
            waiting.extend_from_slice(line);
            (was_empty, waiting.len())
        };
        if self.is_urgent || bytes > MAX_WAITING_BYTES {
            LINES.write_all()?;
        } else if was_empty {
            LINES.arrived.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
