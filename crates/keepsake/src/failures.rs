//! The failures of calls, with the class that decides the exit code.

use std::fmt::Display;
use std::io;

use keepsake_client::ClientError;
use keepsake_config::{Failure, FailureClass};
use keepsake_engine::EngineError;

/// Fields of the API whose options have other names.
const OPTIONS: [(&str, &str); 18] = [
    ("api_key_id", "key"),
    ("created_at.gte", "since"),
    ("created_at.lte", "until"),
    ("expires_at", "at"),
    ("expires_at", "expires-in"),
    ("expires_at", "expires-in-days"),
    ("expires_at", "in"),
    ("expires_at", "never"),
    ("limits", "limit"),
    ("memory_store_ids", "store"),
    ("other_store_id", "other"),
    ("path_prefix", "under"),
    ("scopes", "scope"),
    ("sensitive_data_policy", "sensitive-data"),
    ("service_account_id", "service-account"),
    ("session_id", "session"),
    ("store_metadata", "metadata"),
    ("user_id", "user"),
];

/// The text of a failure. If a server refused a field of the API, the text names the command's option instead, also
/// for other fields that it quotes, unless they may be values. If several options stand for a field, it names the first.
pub(crate) fn with_option(failure: &Failure, options: &[String]) -> String {
    let text = failure.to_string();
    let Some((what, rest)) = text.split_once(": `").filter(|_| failure.is_refusal()) else {
        return text;
    };
    let option_of = |field: &str| {
        let alike = field.replace('_', "-");
        options.iter().find(|option| **option == alike || OPTIONS.contains(&(field, option.as_str())))
    };
    // The rest begins within backticks: every other part is quoted. The first is the refused field; later ones may
    // be values, as in "must be `a` or `b`".
    let is_field = |number: usize, part: &str| {
        let is_name = part.contains('_') || OPTIONS.iter().any(|(field, _)| *field == part);
        number == 0 || (number.is_multiple_of(2) && is_name)
    };
    let replaced = |(number, part): (usize, &str)| {
        let option = option_of(part).filter(|_| is_field(number, part));
        option.map_or_else(|| part.to_owned(), |option| format!("--{option}"))
    };
    let parts: Vec<_> = rest.split('`').enumerate().map(replaced).collect();
    format!("{what}: `{}", parts.join("`"))
}

/// For `map_err`: puts `what` before the error of a call, and classifies it.
pub(crate) fn failure_of(what: impl Display) -> impl FnOnce(ClientError) -> Failure {
    move |error| of_client(error).within(what)
}

/// For `map_err`: makes the failure of a file or folder that an argument names.
pub(crate) fn unreadable(named: impl Display) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let class = match error.kind() {
            io::ErrorKind::NotFound => FailureClass::NotFound,
            _ => FailureClass::Failed,
        };
        Failure::of_class(class, format!("{named} cannot be read: {error}"))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(crate) fn of_client(error: ClientError) -> Failure {
    let (class, text) = (class_of(&error), error.to_string());
    match &error {
        ClientError::Refused(_) => Failure::refusal(class, text),
        _ => Failure::of_class(class, text),
    }
}

pub(crate) fn class_of(error: &ClientError) -> FailureClass {
    match error.status() {
        _ if matches!(error, ClientError::Setting { .. } | ClientError::WrongUrl { .. }) => {
            FailureClass::Usage
        }
        None => FailureClass::Unavailable,
        Some(status) => match class_of_status(status.as_u16()) {
            FailureClass::Failed if error.is_transient() => FailureClass::Unavailable,
            class => class,
        },
    }
}

/// Whether the server says that a content is missing or damaged, which concerns no other
/// memory.
pub(crate) fn is_content_lost(error: &ClientError) -> bool {
    let kinds = ["content_missing", "content_damaged"];
    matches!(error, ClientError::Refused(refusal) if kinds.contains(&refusal.kind.as_str()))
}

pub(crate) const fn class_of_status(status: u16) -> FailureClass {
    match status {
        401 | 403 => FailureClass::NotAllowed,
        404 => FailureClass::NotFound,
        409 => FailureClass::Conflict,
        408 | 502 | 503 | 504 | 529 => FailureClass::Unavailable,
        _ => FailureClass::Failed,
    }
}

/// The failure of an engine's call, with the class that its answer over HTTP would have.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(crate) fn of_engine(error: EngineError) -> Failure {
    Failure::of_class(class_of_status(keepsake_server::status_of(&error).as_u16()), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_take_the_place_of_all_fields_of_a_refusal() {
        let text = "it is not made: `at` must be `at` or `depth` beside `path_prefix`, `scopes` or a key of `no_option`";
        let refusal = Failure::refusal(FailureClass::Failed, text);
        let options = ["under", "at", "depth", "scope"].map(str::to_owned);
        let expected = "it is not made: `--at` must be `at` or `depth` beside `--under`, `--scope` or a key of `no_option`";
        assert_eq!(with_option(&refusal, &options), expected);
    }
}
