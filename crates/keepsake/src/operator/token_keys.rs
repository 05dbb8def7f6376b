//! `keepsake token-key …`

use clap::{Args, Subcommand};
use keepsake_client::Method;
use keepsake_config::cli::Result;
use serde_json::json;

use super::target::{OperatorApi, with_api};
use crate::cli::TargetArgs;
use crate::output::{Printer, confirm, text_of};

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

pub(crate) async fn run(command: TokenKeyCommand) -> Result<()> {
    let TokenKeyCommand::Rotate(args) = command;
    let question = "Refuse all tokens that were signed until now?";
    confirm(question, args.yes || !args.compromised)?;
    let body = json!({"compromised": args.compromised});
    let printer = Printer::new(args.target.output.output);
    let work = async |api: &OperatorApi| {
        // With keys of two master keys, a server that knows one of these would not start.
        api.require_master_key().await?;
        api.call(Method::POST, &["token_keys", "rotate"], &[], Some(&body)).await
    };
    let key = with_api(args.target, "the token signing key was not rotated", work).await?;
    printer.done(&key, || {
        let signs_from = text_of(&key, "signs_from");
        let refused = if args.compromised {
            "tokens that were signed before are refused within about a minute: sessions need new ones\n"
        } else {
            ""
        };
        format!(
            "the new token signing key is {}, which signs from {signs_from} ({})\n{refused}",
            text_of(&key, "id"),
            printer.relative(signs_from)
        )
    })
}
