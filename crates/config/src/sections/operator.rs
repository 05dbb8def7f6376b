//! `[operator]`

use keepsake_server::OperatorToken;

use crate::checks::address;
use crate::reader::Reader;

#[derive(Debug, Clone)]
pub struct OperatorSettings {
    /// Host and port of the operator's own listener.
    pub listen: String,
    pub token: OperatorToken,
}

impl OperatorSettings {
    /// `None` without a token.
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let listen = reader.get("operator.listen", "127.0.0.1:8081", address);
        let token = reader.secret_or_file("operator.token", "token", |secret| {
            OperatorToken::new(secret)
                .ok_or_else(|| format!("must be a token of at least {} characters", OperatorToken::MIN_CHARS))
        });
        Some(Self { listen, token: token? })
    }
}
