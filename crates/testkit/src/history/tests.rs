//! A correct history passes; each rule finds the history that breaks it.

use super::*;

/// Builds a history of one memory, `mem_1` at `/a.md`, call by call.
#[derive(Default)]
struct Builder {
    history: History,
}

const PATH: &str = "/a.md";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn version(number: usize, operation: Operation, content: Option<&str>) -> Version {
    Version {
        id: format!("v{number}"),
        memory_id: "mem_1".to_owned(),
        operation,
        path: Some(PATH.to_owned()),
        content: content.map(str::to_owned),
        is_redacted: false,
    }
}

fn done() -> Outcome {
    Outcome::Done { version_id: None }
}

fn named(version_id: &str) -> Outcome {
    Outcome::Done { version_id: Some(version_id.to_owned()) }
}

fn append(number: u64) -> Change {
    Change::Edit { path: PATH.to_owned(), edit: Edit::Append { text: tag(number) } }
}

fn delete() -> Change {
    Change::Delete { target: Target::Path(PATH.to_owned()), expected: None }
}

impl Builder {
    /// `/a.md` with the content `[#0]`, by call 0 in the first second.
    fn new() -> Self {
        let create = Change::Create { path: PATH.to_owned(), content: format!("{}\n", tag(0)) };
        Self::default().call(0, (0, 1), create, named("v0")).version(Operation::Created, Some(&lines(&[0])))
    }

    fn call(mut self, number: u64, (began, ended): (u64, u64), change: Change, outcome: Outcome) -> Self {
        let at = Interval { began: seconds(began), ended: seconds(ended) };
        self.history.calls.push(Call { number, at, change, outcome });
        self
    }

    fn version(mut self, operation: Operation, content: Option<&str>) -> Self {
        let number = self.history.versions.len();
        self.history.versions.push(version(number, operation, content));
        self
    }

    fn read(mut self, (began, ended): (u64, u64), saw: Observed) -> Self {
        let at = Interval { began: seconds(began), ended: seconds(ended) };
        let target = Target::Path(PATH.to_owned());
        self.history.reads.push(Read { at, target, saw });
        self
    }

    /// The rules that are broken, with the last version as the head.
    fn check(mut self) -> Vec<Rule> {
        let last = self.history.versions.last().unwrap();
        if let (Some(content), Some(path)) = (&last.content, &last.path) {
            let memory_id = last.memory_id.clone();
            self.history.heads = vec![FinalHead { memory_id, path: path.clone(), content: content.clone() }];
        }
        self.check_with_heads()
    }

    fn check_with_heads(self) -> Vec<Rule> {
        let violations = self.history.check();
        for violation in &violations {
            println!("{violation}");
        }
        violations.into_iter().map(|violation| violation.rule).collect()
    }
}

fn lines(numbers: &[u64]) -> String {
    let lines: Vec<_> = numbers.iter().map(|number| format!("{}\n", tag(*number))).collect();
    lines.concat()
}

#[test]
fn correct_history_has_no_violation() {
    let renamed = Some("/b[#5].md".to_owned());
    let mut builder = Builder::new()
        .call(1, (1, 4), append(1), done())
        .call(2, (1, 3), append(2), Outcome::Unknown)
        .version(Operation::Modified, Some(&lines(&[0, 2])))
        .version(Operation::Modified, Some(&lines(&[0, 2, 1])))
        .call(3, (4, 5), append(3), Outcome::Refused)
        .call(4, (4, 5), append(4), Outcome::Unknown)
        .read((0, 0), Observed::Absent)
        .read((2, 4), Observed::Content(lines(&[0])))
        .read((2, 4), Observed::Content(lines(&[0, 2])))
        .call(6, (5, 6), delete(), done())
        .version(Operation::Deleted, None)
        .read((6, 7), Observed::Absent)
        .call(7, (7, 8), Change::Restore { version_id: "v1".to_owned() }, Outcome::Unknown)
        .version(Operation::Created, Some(&lines(&[0, 2])))
        .call(8, (8, 9), Change::Redact { version_id: "v0".to_owned() }, done())
        .call(
            9,
            (9, 10),
            Change::Update {
                memory_id: "mem_1".to_owned(),
                expected: Some(lines(&[0, 2])),
                content: lines(&[9]),
            },
            named("v5"),
        )
        .version(Operation::Modified, Some(&lines(&[9])))
        .call(
            5,
            (10, 11),
            Change::Rename { target: Target::Memory("mem_1".to_owned()), to: renamed.clone().unwrap() },
            done(),
        )
        .version(Operation::Modified, Some(&lines(&[9])));
    let versions = &mut builder.history.versions;
    versions[6].path = renamed;
    (versions[0].path, versions[0].content, versions[0].is_redacted) = (None, None, true);
    assert_eq!(builder.check(), []);
}

#[test]
fn acknowledged_call_without_a_version_is_found() {
    let history = Builder::new().call(1, (1, 2), append(1), done());
    assert_eq!(history.check(), [Rule::AcknowledgedIsKept]);
    let history = Builder::new().call(1, (1, 2), delete(), done());
    assert_eq!(history.check(), [Rule::AcknowledgedIsKept]);
}

#[test]
fn call_that_landed_twice_is_found() {
    let history = Builder::new()
        .call(1, (1, 2), append(1), done())
        .version(Operation::Modified, Some(&lines(&[0, 1])))
        .call(
            2,
            (2, 3),
            Change::Update { memory_id: "mem_1".to_owned(), expected: None, content: lines(&[2]) },
            done(),
        )
        .version(Operation::Modified, Some(&lines(&[2])))
        .version(Operation::Modified, Some(&lines(&[2, 1])));
    assert!(history.check().contains(&Rule::LandsOnce));
}

#[test]
fn refused_call_that_landed_is_found() {
    let history = Builder::new()
        .call(1, (1, 2), append(1), Outcome::Refused)
        .version(Operation::Modified, Some(&lines(&[0, 1])));
    assert_eq!(history.check(), [Rule::RefusedDoesNotLand]);
}

#[test]
fn version_without_a_call_is_found() {
    let history = Builder::new().version(Operation::Deleted, None);
    assert_eq!(history.check(), [Rule::VersionHasACall]);
}

#[test]
fn lost_update_is_found() {
    let history = Builder::new()
        .call(1, (1, 2), append(1), done())
        .call(2, (1, 2), append(2), done())
        .version(Operation::Modified, Some(&lines(&[0, 1])))
        .version(Operation::Modified, Some(&lines(&[0, 2])));
    assert_eq!(history.check(), [Rule::FollowsFromPredecessor]);
}

#[test]
fn update_against_its_precondition_is_found() {
    let update = Change::Update {
        memory_id: "mem_1".to_owned(),
        expected: Some("something else".to_owned()),
        content: lines(&[1]),
    };
    let history =
        Builder::new().call(1, (1, 2), update, named("v1")).version(Operation::Modified, Some(&lines(&[1])));
    assert_eq!(history.check(), [Rule::FollowsFromPredecessor]);
}

#[test]
fn order_that_contradicts_real_time_is_found() {
    let history = Builder::new()
        .call(1, (5, 6), append(1), done())
        .call(2, (1, 2), append(2), done())
        .version(Operation::Modified, Some(&lines(&[0, 1])))
        .version(Operation::Modified, Some(&lines(&[0, 1, 2])));
    assert_eq!(history.check(), [Rule::RealTimeOrder]);
}

#[test]
fn restore_that_found_its_version_there_is_not_its_call() {
    let restore = || Change::Restore { version_id: "v0".to_owned() };
    let history = Builder::new()
        .call(1, (1, 2), append(1), done())
        .call(3, (6, 7), restore(), named("v2"))
        // Its answer came late.
        .call(2, (3, 9), restore(), named("v2"))
        .version(Operation::Modified, Some(&lines(&[0, 1])))
        .version(Operation::Modified, Some(&lines(&[0])))
        .read((4, 5), Observed::Content(lines(&[0])));
    assert_eq!(history.check(), []);
}

#[test]
fn read_of_an_overwritten_content_is_found() {
    let history = Builder::new()
        .call(1, (1, 2), append(1), done())
        .version(Operation::Modified, Some(&lines(&[0, 1])))
        .read((3, 4), Observed::Content(lines(&[0])));
    assert_eq!(history.check(), [Rule::ReadIsCurrent]);
}

#[test]
fn read_of_content_that_never_was_is_found() {
    let history = Builder::new().read((3, 4), Observed::Content("torn".to_owned()));
    assert_eq!(history.check(), [Rule::ReadIsCurrent]);
    let history = Builder::new().read((3, 4), Observed::Absent);
    assert_eq!(history.check(), [Rule::ReadIsCurrent]);
}

#[test]
fn later_read_of_an_older_content_is_found() {
    let history = Builder::new()
        .call(1, (1, 9), append(1), done())
        .version(Operation::Modified, Some(&lines(&[0, 1])))
        .read((2, 3), Observed::Content(lines(&[0, 1])))
        .read((4, 5), Observed::Content(lines(&[0])));
    assert_eq!(history.check(), [Rule::RealTimeOrder]);
}

#[test]
fn two_memories_at_one_path_are_found() {
    let create = Change::Create { path: PATH.to_owned(), content: lines(&[1]) };
    let mut history =
        Builder::new().call(1, (1, 2), create, done()).version(Operation::Created, Some(&lines(&[1])));
    history.history.versions[1].memory_id = "mem_2".to_owned();
    assert!(history.check().contains(&Rule::PathIsUnique));
}

#[test]
fn missing_and_unrequested_redactions_are_found() {
    let redact = Change::Redact { version_id: "v0".to_owned() };
    let history = Builder::new().call(1, (1, 2), redact, done());
    assert_eq!(history.check(), [Rule::RedactedAsAsked]);

    let mut history =
        Builder::new().call(1, (1, 2), append(1), done()).version(Operation::Modified, Some(&lines(&[0, 1])));
    let first = &mut history.history.versions[0];
    (first.content, first.is_redacted) = (None, true);
    assert!(history.check().contains(&Rule::RedactedAsAsked));
}

#[test]
fn listing_that_differs_from_the_versions_is_found() {
    let mut history = Builder::new();
    assert_eq!(Builder::new().check_with_heads(), [Rule::HeadsMatchVersions]);
    let head = |memory_id: &str, content: &str| FinalHead {
        memory_id: memory_id.to_owned(),
        path: PATH.to_owned(),
        content: content.to_owned(),
    };
    history.history.heads = vec![head("mem_1", "other"), head("mem_2", "")];
    assert_eq!(history.check_with_heads(), [Rule::HeadsMatchVersions, Rule::HeadsMatchVersions]);
}
