//! The header of a token, which is read before the verification.

use keepsake_testkit::issuer::{encode, unsigned};
use keepsake_tokens::{MAX_TOKEN_BYTES, TokenError, Untrusted};
use proptest::prelude::*;

use crate::fixture::{KEYS, valid};

fn refusal(token: &str) -> TokenError {
    Untrusted::parse(token).unwrap_err()
}

fn with_header(header: &str) -> String {
    format!("{}.AA", unsigned(header, "{}"))
}

#[test]
fn token_has_three_parts() {
    for token in ["", ".", "..", "...", "a", "a.b", "a.b.c.d", "a..c", ".b.c"] {
        assert_eq!(refusal(token), TokenError::Malformed, "{token}");
    }
    let header = encode(br#"{"alg":"RS256"}"#);
    assert_eq!(refusal(&format!("{header}..AA")), TokenError::Malformed);
    assert_eq!(refusal(&format!("{header}.e30.AA.AA")), TokenError::Malformed);
    assert_eq!(refusal(&format!("{header}.e30.")), TokenError::Signature);
}

#[test]
fn header_is_one_json_object_in_base64url() {
    for header in [
        "",
        "[]",
        r#"["RS256",null,null,null]"#,
        "null",
        r#"{"alg":1}"#,
        r#"{"alg":"RS256","alg":"RS256"}"#,
        r#"{"alg":"RS256","kid":1}"#,
        r#"{"kid":"a"}"#,
        r#"{"alg":"RS256"} x"#,
        "{",
    ] {
        assert_eq!(refusal(&with_header(header)), TokenError::Malformed, "{header}");
    }
    let no_text = encode(b"{\"alg\":\"RS256\",\"x\":\"\xff\"}");
    assert_eq!(refusal(&format!("{no_text}.e30.AA")), TokenError::Malformed);
    assert_eq!(refusal("eyJhbGciOiJSUzI1NiJ9=.e30.AA"), TokenError::Malformed);
    assert_eq!(refusal("eyJ+bGciOiJSUzI1NiJ9.e30.AA"), TokenError::Malformed);
}

#[test]
fn critical_header_extension_is_refused() {
    for header in [
        r#"{"alg":"RS256","crit":["b64"],"b64":false}"#,
        r#"{"alg":"RS256","crit":[]}"#,
        r#"{"alg":"RS256","crit":"exp"}"#,
    ] {
        assert_eq!(refusal(&with_header(header)), TokenError::Critical, "{header}");
    }
}

#[test]
fn token_of_another_type_is_refused() {
    for typ in ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "Application/JWT"] {
        let header = format!(r#"{{"alg":"RS256","typ":"{typ}"}}"#);
        let token = with_header(&header);
        let parsed = Untrusted::parse(&token).unwrap();
        assert!(!parsed.is_own(), "{typ}");
    }
    for typ in ["logout+jwt", "dpop+jwt", "secevent+jwt", "", "Keepsake+JWT", "application/", "ЯWT"] {
        let header = format!(r#"{{"alg":"RS256","typ":"{typ}"}}"#);
        assert_eq!(refusal(&with_header(&header)), TokenError::Type, "{typ}");
    }
}

#[test]
fn token_over_8_kib_is_refused_unparsed() {
    let token = KEYS.ed25519.token("ed", &valid());
    let longest = format!("{token}{}", "A".repeat(MAX_TOKEN_BYTES - token.len()));
    assert!(Untrusted::parse(&longest).is_ok());
    assert_eq!(refusal(&format!("{longest}A")), TokenError::TooLong);
    assert_eq!(refusal(&".".repeat(1 << 20)), TokenError::TooLong);
}

#[test]
fn nothing_shows_the_token() {
    let token = KEYS.ed25519.token("ed", &valid());
    let shown = format!("{:?}", Untrusted::parse(&token).unwrap());
    assert_eq!(shown, "Untrusted { algorithm: EdDSA, is_own: false, .. }");
    for error in [TokenError::Malformed, TokenError::Signature, TokenError::UnknownKey] {
        assert!(!error.is_transient());
        assert!(error.to_string().starts_with("the token"));
    }
    assert!(TokenError::KeysUnavailable.is_transient());
}

proptest! {
    #[test]
    fn no_text_panics(token in "\\PC{0,200}") {
        let _ = Untrusted::parse(&token);
    }

    #[test]
    fn no_header_panics(header in "\\{\"(alg|kid|typ|crit)\":\\PC{0,40}\\}", signature in "[A-Za-z0-9_=-]{0,20}") {
        let _ = Untrusted::parse(&format!("{}.{signature}", unsigned(&header, "{}")));
    }
}
