//! Stdout, and questions to the person at the terminal.

use std::io::{BufRead, ErrorKind, IsTerminal, Write};

use keepsake_config::{Failure, FailureClass};

/// The exit code of a program whose reader went away, as shells report it.
const BROKEN_PIPE: i32 = 128 + 13;

/// Prints to stdout. A closed pipe ends the program quietly.
///
/// # Errors
/// [`Failure`] if stdout cannot be written.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(BROKEN_PIPE),
        written => written.map_err(Failure::of("stdout cannot be written")),
    }
}

/// Whether a person can answer questions.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for confirmation, unless the user is sure already.
///
/// # Errors
/// [`Failure`] if the answer is not `y`, or stdin is not a terminal.
pub(crate) fn confirm(question: &str, is_sure: bool) -> Result<(), Failure> {
    if is_sure {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::of_class(
            FailureClass::Usage,
            "nothing was changed: confirm with --yes, because stdin is not a terminal",
        ));
    }
    match answer(&format!("{question} [y/N] "))?.as_str() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was changed")),
    }
}

/// Asks a question on the terminal.
///
/// # Errors
/// [`Failure`] if stdin cannot be read.
pub(crate) fn answer(question: &str) -> Result<String, Failure> {
    eprint!("{question}");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(Failure::of("the answer cannot be read"))?;
    Ok(line.trim().to_owned())
}
