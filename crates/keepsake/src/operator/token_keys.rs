//! `keepsake token-key …`

use clap::{Args, Subcommand};
use keepsake_client::Method;
use keepsake_config::Failure;
use serde_json::json;

use super::target::{Request, call, id_of};
use crate::cli::TargetArgs;
use crate::output::confirm;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenKeyCommand {
    /// Rotates the token signing key
    Rotate(RotateTokenKeyArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake token-key rotate --server http://127.0.0.1:8081
  keepsake token-key rotate --compromised --yes --config keepsake.toml")]
pub(crate) struct RotateTokenKeyArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Also rejects every token signed before: the old key may be compromised
    #[arg(long)]
    compromised: bool,
    /// Does not ask for confirmation of --compromised
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(command: TokenKeyCommand) -> Result<(), Failure> {
    let TokenKeyCommand::Rotate(args) = command;
    let question = "Refuse all tokens that were signed until now?";
    confirm(question, args.yes || !args.compromised)?;
    let body = json!({"compromised": args.compromised});
    let request = Request::change(Method::POST, &["token_keys", "rotate"], Some(body));
    let (printer, key) = call(args.target, "the token signing key was not rotated", request).await?;
    printer.done(&key, || {
        let signs_from = key["signs_from"].as_str().unwrap_or_default();
        format!(
            "the new token signing key is {}, which signs from {signs_from} ({})\n",
            id_of(&key),
            printer.relative(signs_from)
        )
    })
}
