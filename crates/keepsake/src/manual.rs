//! `keepsake completions` and `keepsake man`

use clap::CommandFactory;
use keepsake_config::Failure;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::data_dir::unusable;
use crate::output::print;

pub(crate) fn print_completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "keepsake", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Prints the manual page of the program, or writes those of all commands.
pub(crate) fn print_manual(args: &ManArgs) -> Result<(), Failure> {
    // Without the commit: packagers compare pages of different builds.
    let command = Cli::command().version(env!("CARGO_PKG_VERSION"));
    if let Some(folder) = &args.dir {
        return clap_mangen::generate_to(command, folder).map_err(unusable(folder));
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.map_err(Failure::of("the manual page cannot be made"))?;
    print(&String::from_utf8_lossy(&page))
}
