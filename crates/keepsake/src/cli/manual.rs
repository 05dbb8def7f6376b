//! Arguments of `keepsake completions` and `keepsake man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake completions bash > /etc/bash_completion.d/keepsake
  keepsake completions zsh > \"${fpath[1]}/_keepsake\"
  keepsake completions fish > ~/.config/fish/completions/keepsake.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake man | man -l -
  keepsake man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Writes the pages of all commands to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
