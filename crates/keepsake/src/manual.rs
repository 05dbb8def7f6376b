//! `keepsake man`

use std::path::PathBuf;

use clap::{Args, Command};
use keepsake_config::{Failure, cli::Result};

use crate::data_dir::unusable;
use crate::output::print;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake man | man -l -
  keepsake man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Writes the pages of all commands to this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the manual page of the program, or writes those of all commands.
pub(crate) fn print_manual(program: Command, args: &ManArgs) -> Result<()> {
    // Without the commit: packagers compare pages of different builds.
    let program = program.version(env!("CARGO_PKG_VERSION"));
    if let Some(folder) = &args.dir {
        let made = std::fs::create_dir_all(folder);
        return made.and_then(|()| clap_mangen::generate_to(program, folder)).map_err(unusable(folder));
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(program).render(&mut page);
    rendered.map_err(Failure::of("the manual page cannot be made"))?;
    print(&String::from_utf8_lossy(&page))
}
