//! Stdout and stderr, and questions to the person at the terminal.

use std::borrow::Cow;
use std::io::{BufRead, ErrorKind, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use keepsake_config::{Failure, cli::Result};

use super::foreign::escaped;

/// The exit code of a program whose reader went away, as shells report it.
const BROKEN_PIPE: i32 = 128 + 13;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// A text of a server or an agent for this stream: a terminal gets no character that
    /// controls it, a pipe or a file gets the text as it is.
    pub(crate) fn shown(self, text: &str) -> Cow<'_, str> {
        let is_terminal = match self {
            Self::Stdout => std::io::stdout().is_terminal(),
            Self::Stderr => std::io::stderr().is_terminal(),
        };
        if is_terminal { escaped(text) } else { Cow::Borrowed(text) }
    }
}

/// Prints to stdout a text that may have parts of a server or an agent. A closed pipe
/// ends the program quietly.
pub(crate) fn print(text: &str) -> Result<()> {
    print_styled(&Stream::Stdout.shown(text))
}

/// As [`print()`], for a text with colours, whose foreign parts are [`Stream::shown`] or
/// [`printable`](super::printable).
pub(crate) fn print_styled(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(BROKEN_PIPE),
        written => written.map_err(Failure::of("stdout cannot be written")),
    }
}

/// Prints a line to stderr, which may have parts of a server or an agent.
pub(crate) fn notice(text: &str) {
    notice_styled(&format!("{}\n", Stream::Stderr.shown(text)));
}

/// Prints to stderr as [`print_styled`] does to stdout.
#[expect(clippy::print_stderr, reason = "the only place that prints to stderr")]
pub(crate) fn notice_styled(text: &str) {
    eprint!("{text}");
}

/// A progress bar or a spinner, which draws nothing unless stderr is a terminal.
pub(crate) fn progress_bar(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for confirmation, unless the user is sure already. Fails if the answer is not
/// `y`, or stdin is not a terminal.
pub(crate) fn confirm(question: &str, is_sure: bool) -> Result<()> {
    if is_sure {
        return Ok(());
    }
    require_terminal()?;
    match answer(&format!("{question} [y/N] "))?.as_str() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was changed")),
    }
}

/// Fails like [`confirm`] if stdin is not a terminal. A command that must look up what its question names
/// calls this first.
pub(crate) fn require_terminal() -> Result<()> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage("nothing was changed: confirm with --yes, because stdin is not a terminal"))
}

pub(crate) fn answer(question: &str) -> Result<String> {
    notice_styled(&Stream::Stderr.shown(question));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(Failure::of("the answer cannot be read"))?;
    Ok(line.trim().to_owned())
}
