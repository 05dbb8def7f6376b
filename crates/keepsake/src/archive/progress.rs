//! The progress of an export or import: a bar on a terminal, a few lines elsewhere.

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::output::notice;

/// Shorter steps print no lines.
const MIN_LINES_TOTAL: u64 = 1_000;
/// Lines that are printed where stderr is not a terminal.
const LINES: u64 = 10;

/// The progress of one step.
pub(super) struct Progress {
    bar: ProgressBar,
    /// The verb of the message, such as `exported`.
    done: &'static str,
    position: u64,
}

impl Progress {
    pub(super) fn new(done: &'static str, total: u64) -> Self {
        // Draws nothing unless stderr is a terminal.
        let bar = ProgressBar::new(total);
        let template = "{msg} {bar:30} {human_pos} of {human_len}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(done);
        Self { bar, done, position: 0 }
    }

    pub(super) fn add(&mut self, parts: u64) {
        let total = self.bar.length().unwrap_or_default();
        let tenth = |position: u64| (position * LINES).checked_div(total).unwrap_or_default();
        let before = tenth(self.position);
        self.position += parts;
        self.bar.set_position(self.position);
        if self.bar.is_hidden() && total >= MIN_LINES_TOTAL && tenth(self.position) > before {
            notice(&format!("{} {} of {}", self.done, HumanCount(self.position), HumanCount(total)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
