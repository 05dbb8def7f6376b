//! `keepsake token-key …`

use keepsake_config::Failure;
use serde_json::json;

use super::target::{Request, call, id_of};
use crate::cli::TokenKeyCommand;
use crate::output::confirm;

pub(crate) async fn run(command: TokenKeyCommand) -> Result<(), Failure> {
    let TokenKeyCommand::Rotate(args) = command;
    let question = "Refuse all tokens that were signed until now?";
    confirm(question, args.yes || !args.compromised)?;
    let request = Request::post(&["token_keys", "rotate"]).with(json!({"compromised": args.compromised}));
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
