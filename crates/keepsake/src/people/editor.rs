//! `keepsake memory edit`

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use keepsake_config::{Failure, FailureClass};
use tempfile::TempPath;

use super::connection::StoreConnection;
use super::history::{Titled, unified_diff};
use super::memories::{Expected, find, save, text_of};
use super::{agent_path, answer, api_path};
use crate::cli::PathArgs;
use crate::output::{Stream, is_interactive, notice, notice_styled, print};

/// Opens a memory in the editor and saves it unless somebody else changed it.
///
/// On a conflict it shows both changes and asks what to do. The typed text is never
/// lost: unsaved text stays in a file.
pub(super) async fn edit(args: PathArgs) -> Result<(), Failure> {
    let path = api_path(&args.path)?;
    let connection = StoreConnection::open(&args.store).await?;
    let mut base = Base::read(&connection, &path).await?;
    let draft = Draft::new(&path, &base.content)?;
    loop {
        let content = draft.edit()?;
        if content == base.content {
            return print(&format!("{} was not changed\n", agent_path(&path)));
        }
        loop {
            match save(&connection, &path, &content, base.expected.as_ref(), None).await {
                Ok(()) => return draft.discard(),
                Err(failure) if failure.exit_code() != FailureClass::Conflict as u8 => {
                    return Err(draft.keep(failure));
                }
                Err(failure) if !is_interactive() => return Err(draft.keep(failure)),
                Err(_) => {}
            }
            let newer = match Base::read(&connection, &path).await {
                Ok(newer) => newer,
                Err(failure) => return Err(draft.keep(failure)),
            };
            let difference = |title: &str, text: &str| {
                let before = Titled { title: "before", text: &base.content };
                notice_styled(&unified_diff(Stream::Stderr, before, Titled { title, text }));
            };
            notice(&format!("Somebody else changed {} meanwhile:", agent_path(&path)));
            difference("theirs", &newer.content);
            notice("You changed:");
            difference("yours", &content);
            let choice = answer("[e]dit yours again, [o]verwrite theirs, or [q]uit? ")?;
            match choice.as_str() {
                "o" => base.expected = newer.expected,
                "e" => {
                    base = newer;
                    break;
                }
                _ => {
                    let failure = Failure::of_class(
                        FailureClass::Conflict,
                        format!("{} was not saved", agent_path(&path)),
                    );
                    return Err(draft.keep(failure));
                }
            }
        }
    }
}

/// The content that the edit started from.
struct Base {
    content: String,
    /// `None`: the memory does not exist.
    expected: Option<Expected>,
}

impl Base {
    async fn read(connection: &StoreConnection, path: &str) -> Result<Self, Failure> {
        let memory = find(connection, path, "full").await?;
        Ok(Self {
            content: memory.as_ref().map_or("", |memory| text_of(memory, "content")).to_owned(),
            expected: memory.as_ref().map(|memory| Expected {
                memory_id: text_of(memory, "id").to_owned(),
                content_sha256: text_of(memory, "content_sha256").to_owned(),
            }),
        })
    }
}

/// The file that the editor opens.
struct Draft {
    path: TempPath,
}

impl Draft {
    /// A file that only its owner can read, with the memory's extension.
    fn new(path: &str, content: &str) -> Result<Self, Failure> {
        let failed = || Failure::of("the file for the editor cannot be written");
        let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
        let suffix = extension.map_or_else(String::new, |extension| format!(".{extension}"));
        let made = tempfile::Builder::new().prefix("keepsake-").suffix(&suffix).tempfile();
        let mut file = made.map_err(failed())?;
        file.write_all(content.as_bytes()).map_err(failed())?;
        Ok(Self { path: file.into_temp_path() })
    }

    /// Runs the editor; returns the text that it saved.
    fn edit(&self) -> Result<String, Failure> {
        let editor = editor(|name| std::env::var_os(name));
        // As git does: the variable may contain arguments.
        let status = Command::new("sh")
            .arg("-c")
            .arg("exec $KEEPSAKE_EDITOR \"$1\"")
            .arg("sh")
            .arg(&self.path)
            .env("KEEPSAKE_EDITOR", &editor)
            .status();
        let failed = format!("the editor `{}` failed", editor.display());
        match status {
            Ok(status) if status.success() => {
                std::fs::read_to_string(&self.path).map_err(Failure::of(failed))
            }
            Ok(status) => Err(Failure::new(format!("{failed}: {status}"))),
            Err(error) => Err(Failure::of(failed)(error)),
        }
    }

    /// Keeps the file, and names it in the failure.
    fn keep(self, failure: Failure) -> Failure {
        match self.path.keep() {
            Ok(path) => {
                let class = failure.class();
                Failure::of_class(class, format!("{failure}; your text is in {}", path.display()))
            }
            Err(_) => failure,
        }
    }

    fn discard(self) -> Result<(), Failure> {
        self.path.close().map_err(Failure::of("the editor's file cannot be removed"))
    }
}

/// The user's editor.
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
