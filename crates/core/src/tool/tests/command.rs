use super::*;
use proptest::prelude::*;

#[test]
fn each_command_has_its_fields() {
    let path = || at("/memories/a");
    for (input, command, name) in [
        (json!({"path": "/memories/a"}), Command::View { path: path(), view_range: None }, "view"),
        (
            json!({"path": "/memories/a", "view_range": [2, -1]}),
            Command::View { path: path(), view_range: Some((2, -1)) },
            "view",
        ),
        (
            json!({"path": "/memories/a", "file_text": "x"}),
            Command::Create { path: path(), file_text: "x".into() },
            "create",
        ),
        (
            json!({"path": "/memories/a", "old_str": "x", "new_str": "y"}),
            Command::StrReplace { path: path(), old_str: "x".into(), new_str: "y".into() },
            "str_replace",
        ),
        (
            json!({"path": "/memories/a", "insert_line": 0, "insert_text": "x"}),
            Command::Insert { path: path(), insert_line: 0, insert_text: "x".into() },
            "insert",
        ),
        (json!({"path": "/memories/a/"}), Command::Delete { path: path() }, "delete"),
        (
            json!({"old_path": "/memories/a", "new_path": "/memories/b"}),
            Command::Rename { old_path: path(), new_path: at("/memories/b") },
            "rename",
        ),
    ] {
        let mut input = input;
        input["command"] = json!(name);
        input["unknown"] = json!({"ignored": true});
        assert_eq!(parse(&input), Ok(command.clone()));
        assert_eq!((command.name(), command.is_change()), (name, name != "view"));
    }
}

#[test]
fn null_is_the_same_as_absent() {
    let view = parse(&json!({"command": "view", "path": "/memories", "view_range": null}));
    assert_eq!(view, Ok(Command::View { path: at("/memories"), view_range: None }));
    for new_str in [json!({}), json!({"new_str": null})] {
        let mut input = json!({"command": "str_replace", "path": "/memories/a", "old_str": "x"});
        input.as_object_mut().unwrap().extend(new_str.as_object().unwrap().clone());
        let Ok(Command::StrReplace { new_str, .. }) = parse(&input) else { panic!() };
        assert_eq!(new_str, "");
    }
    let missing = ToolError::MissingField { field: "path", expected: "a string" };
    assert_eq!(parse(&json!({"command": "view", "path": null})), Err(missing));
}

fn assert_refused(table: &str) {
    for (input, text) in refusals(table) {
        let refused = parse(&serde_json::from_str(input).unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), text, "{input}");
    }
}

#[test]
fn missing_field_is_named() {
    assert_refused(
        r#"
        {}
            Field `command` is missing; it must be one of `view`, `create`, `str_replace`, `insert`, `delete`, `rename`
        {"command": "view"}
            Field `path` is missing; it must be a string
        {"command": "create", "path": "/memories/a"}
            Field `file_text` is missing; it must be a string
        {"command": "str_replace", "path": "/memories/a"}
            Field `old_str` is missing; it must be a string
        {"command": "insert", "path": "/memories/a", "insert_text": "x"}
            Field `insert_line` is missing; it must be an integer
        {"command": "insert", "path": "/memories/a", "insert_line": 0}
            Field `insert_text` is missing; it must be a string
        {"command": "delete"}
            Field `path` is missing; it must be a string
        {"command": "rename", "path": "/memories/a", "new_path": "/memories/b"}
            Field `old_path` is missing; it must be a string
        {"command": "rename", "old_path": "/memories/a"}
            Field `new_path` is missing; it must be a string
        "#,
    );
}

#[test]
fn wrongly_typed_field_is_named() {
    assert_refused(
        r#"
        {"command": 1}
            Field `command` must be one of `view`, `create`, `str_replace`, `insert`, `delete`, `rename`, but is a number
        {"command": "view", "path": ["/memories"]}
            Field `path` must be a string, but is an array
        {"command": "create", "path": "/memories/a", "file_text": {}}
            Field `file_text` must be a string, but is an object
        {"command": "str_replace", "path": "/memories/a", "old_str": "x", "new_str": false}
            Field `new_str` must be a string, but is a boolean
        {"command": "insert", "path": "/memories/a", "insert_line": "1", "insert_text": "x"}
            Field `insert_line` must be an integer, but is a string
        {"command": "insert", "path": "/memories/a", "insert_line": 1.5, "insert_text": "x"}
            Field `insert_line` must be an integer, but is a number with a fraction
        {"command": "rename", "old_path": "/memories/a", "new_path": 7}
            Field `new_path` must be a string, but is a number
        "#,
    );
}

#[test]
fn view_range_is_two_integers_even_for_a_directory() {
    for (range, found) in [
        (json!([]), "another array"),
        (json!([1]), "another array"),
        (json!([1, 2, 3]), "another array"),
        (json!(["1", 2]), "another array"),
        (json!([1, null]), "another array"),
        (json!([1, 1.5]), "another array"),
        (json!("1-2"), "a string"),
    ] {
        let input = json!({"command": "view", "path": "/memories", "view_range": range});
        assert_eq!(
            parse(&input).unwrap_err().to_string(),
            format!("Error: Field `view_range` must be two integers, [start_line, end_line], but is {found}")
        );
    }
}

#[test]
fn float_without_fraction_is_an_integer() {
    let insert_line = |line: Value| {
        let input = json!({
            "command": "insert", "path": "/memories/a", "insert_line": line, "insert_text": "",
        });
        match parse(&input) {
            Ok(Command::Insert { insert_line, .. }) => Some(insert_line),
            _ => None,
        }
    };
    assert_eq!(insert_line(json!(2.0)), Some(2));
    assert_eq!(insert_line(json!(-0.0)), Some(0));
    assert_eq!(insert_line(json!(1e30)), Some(i64::MAX));
    assert_eq!(insert_line(json!(-1e30)), Some(i64::MIN));
    assert_eq!(insert_line(json!(u64::MAX)), Some(i64::MAX));
    assert_eq!(insert_line(json!(0.5)), None);
    assert_eq!(insert_line(json!(true)), None);
    let view = parse(&json!({"command": "view", "path": "/memories/a", "view_range": [1.0, 2]}));
    assert_eq!(view, Ok(Command::View { path: at("/memories/a"), view_range: Some((1, 2)) }));
}

#[test]
fn unknown_command_error_lists_all_commands() {
    assert_refused(
        r#"
        {"command": "undo"}
            Field `command` must be one of `view`, `create`, `str_replace`, `insert`, `delete`, `rename`, but is `undo`
        "#,
    );
    let long = parse(&json!({"command": "x".repeat(1_000_000)})).unwrap_err();
    assert!(long.to_string().len() < 400);
}

#[test]
fn old_path_is_checked_before_the_new_one() {
    assert_refused(
        r#"
        {"command": "rename", "old_path": "/a", "new_path": "/b"}
            Path must start with /memories, got: /a
        "#,
    );
}

/// Any JSON value of small depth.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "/memories(/[a-z.]{0,3}){0,3}".prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| proptest::collection::vec(inner, 0..3).prop_map(Value::from))
}

proptest! {
    #[test]
    fn no_input_panics_and_every_refusal_is_an_error_message(
        command in prop_oneof!["view|create|str_replace|insert|delete|rename", "[a-z]{0,4}"],
        values in proptest::collection::vec(any_value(), 8),
    ) {
        let mut input = json!({"command": command});
        let fields = [
            "path", "view_range", "file_text", "old_str", "new_str", "insert_line", "old_path", "new_path",
        ];
        for (field, value) in fields.into_iter().zip(values) {
            input[field] = value;
        }
        if let Err(error) = parse(&input) {
            prop_assert!(error.to_string().starts_with("Error: "));
        }
    }
}
