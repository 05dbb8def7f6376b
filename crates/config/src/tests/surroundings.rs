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
        assert_problem(MINIMAL, &[variables], expected);
    }
    let both = [("KEEPSAKE_OPERATOR_TOKEN", token), ("KEEPSAKE_OPERATOR_TOKEN_FILE", "/nowhere")];
    assert_problem(MINIMAL, &both, "is set, and so is operator.token (KEEPSAKE_OPERATOR_TOKEN): set one");
}

#[test]
fn telemetry_needs_a_collector_endpoint() {
    assert!(settings(MINIMAL, &[]).unwrap().telemetry.otlp.is_none());
    let settings = settings(COMPLETE, &[("KEEPSAKE_OPERATOR_TOKEN_FILE", "")]).unwrap();
    let attributes = [("deployment.environment.name", "prod"), ("team", "a")];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(settings.telemetry.resource_attributes, attributes);
    let otlp = settings.telemetry.otlp.unwrap();
    assert!((otlp.sample_ratio - 0.25).abs() < f64::EPSILON);
    assert_eq!(otlp.headers[0].0, "authorization");
    assert_eq!(otlp.headers[0].1.expose_secret(), "Bearer hunter2");
    let endpoint = ("KEEPSAKE_TELEMETRY_OTLP_ENDPOINT", "http://collector:4318");
    let headers = |headers| ("KEEPSAKE_TELEMETRY_OTLP_HEADERS", headers);
    for (variables, expected) in [
        (&[headers("a=b")][..], "is allowed only together with telemetry.otlp_endpoint"),
        (&[endpoint, headers("hunter2")], "must be name=value pairs"),
        (&[endpoint, headers("Host=hunter2")], "HTTP headers"),
        (&[("KEEPSAKE_TELEMETRY_OTLP_ENDPOINT", "collector:4318")], "must be an http:// or https:// URL"),
        (&[("KEEPSAKE_TELEMETRY_SAMPLE_RATIO", "1.5")], "must be a number from 0 to 1"),
        (&[("KEEPSAKE_TELEMETRY_RESOURCE_ATTRIBUTES", "a=,b=c")], "must be name=value pairs"),
    ] {
        assert_problem(MINIMAL, variables, expected);
    }
}
