//! `keepsake token-key …`

use keepsake_config::Failure;
use reqwest::Method;
use serde_json::json;

use super::print_json;
use super::side::ask;
use super::{output, print};
use crate::cli::{RotateTokenKeyArgs, TokenKeyCommand};

/// Does what a command about the keys that sign tokens says.
///
/// # Errors
/// [`Failure`] with what is wrong.
pub(crate) async fn run(command: TokenKeyCommand) -> Result<(), Failure> {
    match command {
        TokenKeyCommand::Rotate(args) => rotate(args).await,
    }
}

async fn rotate(args: RotateTokenKeyArgs) -> Result<(), Failure> {
    let json = args.side.json;
    let body = json!({"compromised": args.compromised});
    let failed = "the key that signs tokens was not changed";
    let key = ask(args.side, failed, Method::POST, "/token_keys/rotate", Some(body)).await?;
    if json {
        return print_json(&key);
    }
    print(&output::fields(&key))
}
