//! `[operator]` and `[telemetry]`.

use super::*;

#[test]
fn operator_is_served_only_with_a_token() {
    assert!(settings(MINIMAL, &[]).unwrap().operator.is_none());
    let served = |variables: &[(&str, &str)]| settings(MINIMAL, variables).unwrap().operator.unwrap();
    let token = "0123456789abcdef0123456789abcdef";
    assert_eq!(served(&[("KEEPSAKE_OPERATOR_TOKEN", token)]).listen, "127.0.0.1:8081");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{token}\n")).unwrap();
    let path = file.path().display().to_string();
    let of_file = [("KEEPSAKE_OPERATOR_TOKEN_FILE", path.as_str()), ("KEEPSAKE_OPERATOR_LISTEN", "[::1]:9")];
    assert_eq!(served(&of_file).listen, "[::1]:9");

    std::fs::write(file.path(), "hunter2").unwrap();
    let too_short = "must be a token of at least 32 characters";
    for (variables, expected) in [
        (("KEEPSAKE_OPERATOR_TOKEN", "hunter2"), too_short),
        (("KEEPSAKE_OPERATOR_TOKEN_FILE", path.as_str()), too_short),
        (("KEEPSAKE_OPERATOR_TOKEN_FILE", "/nowhere"), "cannot be read"),
        (("KEEPSAKE_OPERATOR_LISTEN", "8081"), "must be host:port"),
    ] {
        let found = problems(MINIMAL, &[variables]);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        assert!(!found[0].contains(SECRET), "{found:?}");
    }
}

#[test]
fn telemetry_needs_a_collector_endpoint() {
    assert!(settings(MINIMAL, &[]).unwrap().telemetry.otlp.is_none());
    let settings = settings(COMPLETE, &[("KEEPSAKE_OPERATOR_TOKEN_FILE", "")]).unwrap();
    let attributes = [("deployment.environment.name", "prod"), ("team", "a")];
    assert_eq!(
        settings.telemetry.resource_attributes,
        attributes.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    let otlp = settings.telemetry.otlp.unwrap();
    assert!((otlp.sample_ratio - 0.25).abs() < f64::EPSILON);
    assert_eq!(otlp.headers[0].0, "authorization");
    assert_eq!(otlp.headers[0].1.expose_secret(), "Bearer hunter2");
    let endpoint = ("KEEPSAKE_TELEMETRY_OTLP_ENDPOINT", "http://collector:4318");
    for (variables, expected) in [
        (
            vec![("KEEPSAKE_TELEMETRY_OTLP_HEADERS", "a=b")],
            "is allowed only together with telemetry.otlp_endpoint",
        ),
        (vec![endpoint, ("KEEPSAKE_TELEMETRY_OTLP_HEADERS", "hunter2")], "must be name=value pairs"),
        (vec![endpoint, ("KEEPSAKE_TELEMETRY_OTLP_HEADERS", "a b=hunter2")], "HTTP headers"),
        (vec![endpoint, ("KEEPSAKE_TELEMETRY_OTLP_HEADERS", "Host=hunter2")], "HTTP headers"),
        (vec![("KEEPSAKE_TELEMETRY_OTLP_ENDPOINT", "collector:4318")], "must be an http:// or https:// URL"),
        (vec![("KEEPSAKE_TELEMETRY_SAMPLE_RATIO", "1.5")], "must be a number from 0 to 1"),
        (vec![("KEEPSAKE_TELEMETRY_RESOURCE_ATTRIBUTES", "a=,b=c")], "must be name=value pairs"),
    ] {
        let found = problems(MINIMAL, &variables);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        assert!(!found[0].contains(SECRET), "{found:?}");
    }
}
