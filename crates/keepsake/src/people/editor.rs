//! `keepsake memory edit`

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use keepsake_config::{Failure, FailureClass, cli::Result};
use serde_json::Value;
use tempfile::TempPath;
use tokio::process::Command;
use tokio::signal::unix::SignalKind;
use tokio::sync::oneshot;

use super::connection::Connection;
use super::history::{TitledText, unified_diff};
use super::memories::{PathArgs, find, refuse_directory, save};
use super::{agent_path, answer, api_path, text_of};
use crate::output::{Stream, is_interactive, notice, notice_styled, print};
use crate::signals::{EndSignals, interrupted};

/// Opens a memory in the editor and saves it unless somebody else changed it.
///
/// On a conflict it shows both changes and asks what to do. The typed text is never
/// lost: unsaved text stays in a file.
pub(super) async fn edit(args: PathArgs) -> Result<()> {
    let path = api_path(&args.path)?;
    let connection = Connection::of_store(&args.store).await?;
    let base = Base::read(&connection, &path).await?;
    if base.memory.is_none() {
        refuse_directory(&connection, &path).await?;
    }
    let mut draft = Draft::new(&path, base.content.as_bytes())?;
    match save_edited(&connection, &path, base, &mut draft).await {
        Ok(is_changed) => {
            draft.path.close().map_err(Failure::of("the editor's file cannot be removed"))?;
            if is_changed { Ok(()) } else { print(&format!("{} was not changed\n", agent_path(&path))) }
        }
        Err(failure) => Err(draft.keep(failure)),
    }
}

/// Opens the editor until its text is saved or given up; `false` if the memory already
/// has the text.
async fn save_edited(connection: &Connection, path: &str, mut base: Base, draft: &mut Draft) -> Result<bool> {
    let mut signals = EndSignals::listen()?;
    loop {
        let content = draft.edit(&mut signals).await?;
        if content == base.content {
            return Ok(false);
        }
        loop {
            let saved = save(connection, path, &content, base.memory.as_ref(), None);
            match signals.or_end(saved).await {
                Ok(()) => return Ok(true),
                Err(failure) if failure.class() != FailureClass::Conflict || !is_interactive() => {
                    return Err(failure);
                }
                Err(_) => {}
            }
            let newer = signals.or_end(Base::read(connection, path)).await?;
            let difference = |title: &str, text: &str| {
                let before = TitledText { title: "before", text: &base.content };
                notice_styled(&unified_diff(Stream::Stderr, before, TitledText { title, text }));
            };
            notice(&format!("Somebody else changed {} meanwhile:", agent_path(path)));
            difference("theirs", &newer.content);
            notice("You changed:");
            difference("yours", &content);
            let choice = signals.or_end(what_to_do()).await?;
            match choice.as_str() {
                "o" => base.memory = newer.memory,
                "e" => {
                    base = newer;
                    break;
                }
                _ => {
                    return Err(Failure::conflict(format!("{} was not saved", agent_path(path))));
                }
            }
        }
    }
}

/// Asks what to do about a conflict. A separate thread reads the answer, so that a signal can
/// end the program without one.
async fn what_to_do() -> Result<String> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = sender.send(answer("[e]dit yours again, [o]verwrite theirs, or [q]uit? "));
    });
    receiver.await.unwrap_or_else(|_| Err(Failure::new("the answer cannot be read")))
}

/// The content that the edit started from.
struct Base {
    content: String,
    /// `None`: the memory does not exist.
    memory: Option<Value>,
}

impl Base {
    async fn read(connection: &Connection, path: &str) -> Result<Self> {
        let memory = find(connection, path, "full").await?;
        let content = memory.as_ref().map_or("", |memory| text_of(memory, "content")).to_owned();
        Ok(Self { content, memory })
    }
}

struct Draft {
    path: TempPath,
    /// The file's content when the editor first opened it.
    before: Vec<u8>,
    /// Whether the editor may still have text that is not in the file.
    is_open: bool,
}

impl Draft {
    /// A file that only its owner can read, with the memory's extension.
    fn new(path: &str, content: &[u8]) -> Result<Self> {
        let failed = || Failure::of("the file for the editor cannot be written");
        let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
        let suffix = extension.map_or_else(String::new, |extension| format!(".{extension}"));
        let made = tempfile::Builder::new().prefix("keepsake-").suffix(&suffix).tempfile();
        let mut file = made.map_err(failed())?;
        file.write_all(content).map_err(failed())?;
        Ok(Self { path: file.into_temp_path(), before: content.to_vec(), is_open: false })
    }

    /// Runs the editor; returns the text that it saved.
    async fn edit(&mut self, signals: &mut EndSignals) -> Result<String> {
        let editor = editor(|name| std::env::var_os(name));
        let failed = format!("the editor `{}` failed", editor.display());
        // As git does: the variable is a command of the shell, which gets the file as argument.
        let mut line = editor;
        line.push(" \"$@\"");
        let started = Command::new("sh").arg("-c").arg(line).arg("sh").arg(&self.path).spawn();
        let mut running = started.map_err(Failure::of(&failed))?;
        self.is_open = true;
        let status = loop {
            tokio::select! {
                status = running.wait() => break status,
                signal = signals.next() => {
                    // The editor gets Ctrl-C, too, and decides what it means.
                    if signal != SignalKind::interrupt() {
                        return Err(interrupted());
                    }
                }
            }
        };
        self.is_open = false;
        match status {
            Ok(status) if status.success() => std::fs::read_to_string(&self.path)
                .map_err(Failure::of("the text that the editor saved cannot be read")),
            Ok(status) => Err(Failure::new(format!("{failed}: {status}"))),
            Err(error) => Err(Failure::of(failed)(error)),
        }
    }

    /// Keeps the file, and names it in the failure, unless nothing was typed.
    fn keep(self, failure: Failure) -> Failure {
        let is_same = match std::fs::read(&self.path) {
            Ok(bytes) => bytes == self.before,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if is_same && !self.is_open { failure } else { self.kept(failure) }
    }

    fn kept(self, failure: Failure) -> Failure {
        let text = format!("{failure}; your text is in {}", self.path.display());
        match self.path.keep() {
            Ok(_) => Failure::of_class(failure.class(), text),
            Err(_) => failure,
        }
    }
}

/// Keeps a text that was typed into a terminal and could not be saved, and names its file
/// in the failure.
pub(super) fn keep_typed(path: &str, content: &[u8], failure: Failure) -> Failure {
    match Draft::new(path, content) {
        Ok(draft) => draft.kept(failure),
        Err(_) => failure,
    }
}

fn editor(variable: impl Fn(&str) -> Option<OsString>) -> OsString {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    given("VISUAL").or_else(|| given("EDITOR")).unwrap_or_else(|| "vi".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editor_comes_from_the_environment() {
        let of = |visual: &str, editor_name: &str| {
            editor(|name| Some(if name == "VISUAL" { visual } else { editor_name }.into()))
        };
        assert_eq!(of("code --wait", "nano"), "code --wait");
        assert_eq!(of("", "nano"), "nano");
        assert_eq!(of("", ""), "vi");
    }
}
