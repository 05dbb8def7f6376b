//! `keepsake token-key …`

use keepsake_config::Failure;
use reqwest::Method;
use serde_json::json;

use super::print_json;
use super::target::call;
use super::{output, print};
use crate::cli::{RotateTokenKeyArgs, TokenKeyCommand};

/// Runs a `token-key` command.
///
/// # Errors
/// [`Failure`] of the request.
pub(crate) async fn run(command: TokenKeyCommand) -> Result<(), Failure> {
    match command {
        TokenKeyCommand::Rotate(args) => rotate(args).await,
    }
}

async fn rotate(args: RotateTokenKeyArgs) -> Result<(), Failure> {
    let json = args.target.json;
    let body = json!({"compromised": args.compromised});
    let failed = "the token signing key was not rotated";
    let key = call(
        args.target,
        failed,
        Method::POST,
        "/token_keys/rotate",
        Some(body),
    )
    .await?;
    if json {
        return print_json(&key);
    }
    print(&output::fields(&key))
}
