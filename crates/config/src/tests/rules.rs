use super::*;

fn found_by(settings: &Settings, text: &str) -> Vec<String> {
    let findings = settings.engine.scanner.scan(text);
    findings.iter().map(|finding| finding.kind.to_string()).collect()
}

#[test]
fn rules_of_the_scanner_come_from_a_file_or_as_toml_from_a_variable() {
    assert_eq!(found_by(&settings(COMPLETE, &[]).unwrap(), "EMP-004711"), ["employee_id"]);
    let inline = with("sensitive_data.rules = [{ kind = \"badge\", pattern = \"B-[0-9]+\" }]");
    assert_eq!(found_by(&settings(&inline, &[]).unwrap(), "B-1"), ["badge"]);
    let rules = "[{ kind = 'one', pattern = 'X1' }, { kind = 'two', pattern = 'X2' }]";
    let variable = [("KEEPSAKE_SENSITIVE_DATA_RULES", rules)];
    assert_eq!(found_by(&settings(COMPLETE, &variable).unwrap(), "X2 X1 EMP-004711"), ["two", "one"]);
    assert_eq!(found_by(&settings(MINIMAL, &[]).unwrap(), "EMP-004711"), [""; 0]);
    assert!(File::new(COMPLETE).sources(&variable).merge().to_toml().contains(
        r#"rules = [{ kind = "one", pattern = "X1" }, { kind = "two", pattern = "X2" }] # KEEPSAKE_SENSITIVE_DATA_RULES"#
    ));
}

#[test]
fn invalid_scanner_rule_is_named() {
    let list = "must be a list such as [{ kind = \"employee_id\", pattern = \"EMP-[0-9]{6}\" }]";
    let fields = |number| format!("{list}: rule {number} must have a kind and a pattern");
    for (rules, told) in [
        ("1", list.to_owned()),
        ("\"hunter2\"", list.to_owned()),
        ("{ kind = \"a\" }", list.to_owned()),
        ("[1]", fields(1)),
        ("[{ kind = \"a\", pattern = \"b\" }, { kind = \"a\" }]", fields(2)),
        ("[{ kind = \"a\", pattern = \"b\", hunter2 = 1 }]", fields(1)),
        ("[{ kind = \"a\", pattern = \"hunter2(\" }]", "has a pattern that is not a valid".to_owned()),
        ("[{ kind = \"A b\", pattern = \"x\" }]", "has a kind that must be a name such as".to_owned()),
    ] {
        let told = format!("sensitive_data.rules (keepsake.toml, line 4) {told}");
        assert_problem(&with(&format!("sensitive_data.rules = {rules}")), &[], &told);
    }
}
