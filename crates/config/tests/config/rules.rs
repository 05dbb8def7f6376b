//! `[sensitive_data]`.

use super::*;

/// What the scanner of `rules`, a list as TOML, finds in `text`.
fn found_by(settings: &Settings, text: &str) -> Vec<String> {
    let findings = settings.scanner.scan(text);
    findings.iter().map(|finding| finding.kind.to_string()).collect()
}

#[test]
fn rules_of_the_scanner_come_from_a_file_or_as_toml_from_a_variable() {
    let of_file = settings(COMPLETE, &[]).unwrap();
    assert_eq!(found_by(&of_file, "EMP-004711"), ["employee_id"]);
    let inline =
        format!("{MINIMAL}\n[sensitive_data]\nrules = [{{ kind = \"badge\", pattern = \"B-[0-9]+\" }}]");
    assert_eq!(found_by(&settings(&inline, &[]).unwrap(), "B-1"), ["badge"]);
    let variable = [(
        "KEEPSAKE_SENSITIVE_DATA_RULES",
        "[{ kind = 'one', pattern = 'X1' }, { kind = 'two', pattern = 'X2' }]",
    )];
    let of_variable = settings(COMPLETE, &variable).unwrap();
    assert_eq!(found_by(&of_variable, "X2 X1 EMP-004711"), ["two", "one"]);
    assert_eq!(found_by(&settings(MINIMAL, &[]).unwrap(), "EMP-004711"), [""; 0]);
    assert!(File::new(COMPLETE).sources(&variable).merge().to_toml().contains(
        r#"rules = [{ kind = "one", pattern = "X1" }, { kind = "two", pattern = "X2" }] # KEEPSAKE_SENSITIVE_DATA_RULES"#
    ));
}

#[test]
fn invalid_scanner_rule_is_named() {
    let problem =
        |rules: &str| problems(&format!("{MINIMAL}\n[sensitive_data]\nrules = {rules}"), &[]).join("; ");
    let start = "sensitive_data.rules (keepsake.toml, line 6)";
    let list = "must be a list such as [{ kind = \"employee_id\", pattern = \"EMP-[0-9]{6}\" }]";
    for other in ["1", "\"hunter2\"", "{ kind = \"a\" }"] {
        assert_eq!(problem(other), format!("{start} {list}"));
    }
    let fields = "must have a kind and a pattern, both text, and nothing else";
    for (rules, number) in [
        ("[1]", 1),
        ("[{ kind = \"a\", pattern = \"b\" }, { kind = \"a\" }]", 2),
        ("[{ kind = \"a\", pattern = 1 }]", 1),
        ("[{ kind = \"a\", patern = \"b\" }]", 1),
        ("[{ kind = \"a\", pattern = \"b\", hunter2 = 1 }]", 1),
    ] {
        assert_eq!(problem(rules), format!("{start} {list}: rule {number} {fields}"));
    }
    assert_eq!(
        problem("[{ kind = \"a\", pattern = \"hunter2(\" }]"),
        format!(
            "{start} has a pattern that is not a valid regular expression: unclosed group (rule 1 of the list)"
        )
    );
    assert!(
        problem("[{ kind = \"A b\", pattern = \"x\" }]").contains("has a kind that must be a name such as")
    );
}
