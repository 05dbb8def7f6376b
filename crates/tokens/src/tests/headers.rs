use super::*;
use crate::MAX_TOKEN_BYTES;

fn refusal(token: &str) -> TokenError {
    UnverifiedToken::parse(token).unwrap_err()
}

fn with_header(header: &str) -> String {
    format!("{}.AA", unsigned(header, "{}"))
}

#[test]
fn token_has_three_parts_of_which_the_first_is_a_json_object() {
    let header = encode(br#"{"alg":"RS256"}"#);
    assert_eq!(refusal(&format!("{header}.e30.")), TokenError::Signature);
    let no_text = encode(b"{\"alg\":\"RS256\",\"x\":\"\xff\"}");
    let parts = [format!("{header}..AA"), format!("{header}.e30.AA.AA"), format!("{no_text}.e30.AA")];
    let others = ["", ".", "..", "a", "a.b", "a..c", ".b.c"].map(str::to_owned);
    let alphabets = ["eyJhbGciOiJSUzI1NiJ9=.e30.AA", "eyJ+bGciOiJSUzI1NiJ9.e30.AA"].map(str::to_owned);
    let headers = [
        "",
        r#"["RS256",null,null,null]"#,
        "null",
        r#"{"alg":1}"#,
        r#"{"alg":"RS256","alg":"RS256"}"#,
        r#"{"alg":"RS256","kid":1}"#,
        r#"{"kid":"a"}"#,
        r#"{"alg":"RS256"} x"#,
    ];
    for token in headers.map(with_header).into_iter().chain(parts).chain(others).chain(alphabets) {
        assert_eq!(refusal(&token), TokenError::Malformed, "{token}");
    }
}

#[test]
fn critical_extension_or_another_type_is_refused() {
    for crit in [r#"["b64"],"b64":false"#, "[]", "\"exp\""] {
        let header = format!(r#"{{"alg":"RS256","crit":{crit}}}"#);
        assert_eq!(refusal(&with_header(&header)), TokenError::Critical, "{header}");
    }
    let of_type = |typ: &str| with_header(&format!(r#"{{"alg":"RS256","typ":"{typ}"}}"#));
    for typ in ["JWT", "jwt", "AT+JWT", "application/at+jwt", "Application/JWT"] {
        assert!(!UnverifiedToken::parse(&of_type(typ)).unwrap().is_own(), "{typ}");
    }
    for typ in ["logout+jwt", "dpop+jwt", "", "Keepsake+JWT", "application/", "ЯWT"] {
        assert_eq!(refusal(&of_type(typ)), TokenError::Type, "{typ}");
    }
}

#[test]
fn token_over_8_kib_is_refused_unparsed() {
    let token = KEYS.ed25519.token("ed", &valid());
    let longest = format!("{token}{}", "A".repeat(MAX_TOKEN_BYTES - token.len()));
    let parsed = UnverifiedToken::parse(&longest).unwrap();
    assert_eq!(format!("{parsed:?}"), "UnverifiedToken { algorithm: EdDSA, is_own: false, .. }");
    assert_eq!(refusal(&format!("{longest}A")), TokenError::TooLong);
    assert_eq!(refusal(&".".repeat(1 << 20)), TokenError::TooLong);
}
