//! A correct history passes; each rule finds the history that breaks it.

use super::*;

const PATH: &str = "/a.md";
const MEMORY: &str = "mem_1";
const DONE: Outcome = Outcome::Done { version_id: None };

/// The history of one memory, call by call.
#[derive(Default)]
struct Story(History);

fn interval((began, ended): (u64, u64)) -> Interval {
    Interval { began: Duration::from_secs(began), ended: Duration::from_secs(ended) }
}

fn lines(numbers: &[u64]) -> String {
    let lines: Vec<_> = numbers.iter().map(|number| tag(*number) + "\n").collect();
    lines.concat()
}

fn named(version_id: &str) -> Outcome {
    Outcome::Done { version_id: Some(version_id.to_owned()) }
}

fn append(number: u64) -> Change {
    Change::Edit { path: PATH.to_owned(), edit: Edit::Append { text: tag(number) } }
}

fn update(expected: Option<&str>, number: u64) -> Change {
    let expected = expected.map(str::to_owned);
    Change::Update { memory_id: MEMORY.to_owned(), expected, content: lines(&[number]) }
}

fn delete() -> Change {
    Change::Delete { target: Target::Path(PATH.to_owned()), expected: None }
}

fn restore(version_id: &str) -> Change {
    Change::Restore { version_id: version_id.to_owned() }
}

fn redact(version_id: &str) -> Change {
    Change::Redact { version_id: version_id.to_owned() }
}

fn saw(numbers: &[u64]) -> ObservedMemory {
    ObservedMemory::Content(lines(numbers))
}

fn head(memory_id: &str, path: &str, content: &str) -> FinalHead {
    FinalHead { memory_id: memory_id.to_owned(), path: path.to_owned(), content: content.to_owned() }
}

impl Story {
    /// `/a.md` with the content `[#0]`, by call 0 in the first second.
    fn new() -> Self {
        let create = Change::Create { path: PATH.to_owned(), content: lines(&[0]) };
        Self::default().call(0, (0, 1), create, named("v0")).version(Operation::Created, Some(lines(&[0])))
    }

    fn call(mut self, number: u64, at: (u64, u64), change: Change, outcome: Outcome) -> Self {
        self.0.calls.push(Call { number, at: interval(at), change, outcome });
        self
    }

    /// The next version: `v0`, `v1`, …
    fn version(mut self, operation: Operation, content: Option<String>) -> Self {
        self.0.versions.push(Version {
            id: format!("v{}", self.0.versions.len()),
            memory_id: MEMORY.to_owned(),
            operation,
            path: Some(PATH.to_owned()),
            content,
            is_redacted: false,
        });
        self
    }

    /// The next version: an edit left these lines.
    fn edited(self, numbers: &[u64]) -> Self {
        self.version(Operation::Modified, Some(lines(numbers)))
    }

    fn read(mut self, at: (u64, u64), saw: ObservedMemory) -> Self {
        self.0.reads.push(Read { at: interval(at), target: Target::Path(PATH.to_owned()), saw });
        self
    }

    /// The rules that are broken, with the last version as the head.
    fn broken(mut self) -> Vec<Rule> {
        let last = self.0.versions.last().unwrap();
        if let (Some(content), Some(path)) = (&last.content, &last.path) {
            self.0.heads = vec![head(&last.memory_id, path, content)];
        }
        self.broken_with_heads()
    }

    fn broken_with_heads(self) -> Vec<Rule> {
        let violations = self.0.check();
        for violation in &violations {
            println!("{violation}");
        }
        violations.into_iter().map(|violation| violation.rule).collect()
    }
}

#[test]
fn correct_history_has_no_violation() {
    let renamed = "/b[#5].md".to_owned();
    let rename = Change::Rename { target: Target::Memory(MEMORY.to_owned()), to: renamed.clone() };
    let mut story = Story::new()
        .call(1, (1, 4), append(1), DONE)
        .call(2, (1, 3), append(2), Outcome::Unknown)
        .edited(&[0, 2])
        .edited(&[0, 2, 1])
        .call(3, (4, 5), append(3), Outcome::Refused)
        .call(4, (4, 5), append(4), Outcome::Unknown)
        .read((0, 0), ObservedMemory::Absent)
        .read((2, 4), saw(&[0]))
        .read((2, 4), saw(&[0, 2]))
        .call(6, (5, 6), delete(), DONE)
        .version(Operation::Deleted, None)
        .read((6, 7), ObservedMemory::Absent)
        .call(7, (7, 8), restore("v1"), Outcome::Unknown)
        .version(Operation::Created, Some(lines(&[0, 2])))
        .call(8, (8, 9), redact("v0"), DONE)
        .call(9, (9, 10), update(Some(&lines(&[0, 2])), 9), named("v5"))
        .edited(&[9])
        .call(5, (10, 11), rename, DONE)
        .edited(&[9]);
    let versions = &mut story.0.versions;
    versions[6].path = Some(renamed);
    (versions[0].path, versions[0].content, versions[0].is_redacted) = (None, None, true);
    assert_eq!(story.broken(), []);
}

#[test]
fn restore_that_found_its_version_there_is_not_its_call() {
    let story = Story::new()
        .call(1, (1, 2), append(1), DONE)
        .call(3, (6, 7), restore("v0"), named("v2"))
        // Its answer came late.
        .call(2, (3, 9), restore("v0"), named("v2"))
        .edited(&[0, 1])
        .edited(&[0])
        .read((4, 5), saw(&[0]));
    assert_eq!(story.broken(), []);
}

#[test]
fn calls_and_versions_that_do_not_match_are_found() {
    for change in [append(1), delete()] {
        let lost = Story::new().call(1, (1, 2), change, DONE);
        assert_eq!(lost.broken(), [Rule::AcknowledgedIsKept]);
    }
    let refused = Story::new().call(1, (1, 2), append(1), Outcome::Refused).edited(&[0, 1]);
    assert_eq!(refused.broken(), [Rule::RefusedDoesNotLand]);
    let unasked = Story::new().version(Operation::Deleted, None);
    assert_eq!(unasked.broken(), [Rule::VersionHasACall]);
    let landed_twice = Story::new()
        .call(1, (1, 2), append(1), DONE)
        .edited(&[0, 1])
        .call(2, (2, 3), update(None, 2), DONE)
        .edited(&[2])
        .edited(&[2, 1]);
    assert!(landed_twice.broken().contains(&Rule::LandsOnce));
}

#[test]
fn version_that_does_not_follow_from_its_predecessor_is_found() {
    let both = Story::new().call(1, (1, 2), append(1), DONE).call(2, (1, 2), append(2), DONE);
    assert_eq!(both.edited(&[0, 1]).edited(&[0, 2]).broken(), [Rule::FollowsFromPredecessor]);
    let against_its_precondition =
        Story::new().call(1, (1, 2), update(Some("something else"), 1), named("v1")).edited(&[1]);
    assert_eq!(against_its_precondition.broken(), [Rule::FollowsFromPredecessor]);
}

#[test]
fn order_that_contradicts_real_time_is_found() {
    let calls = Story::new().call(1, (5, 6), append(1), DONE).call(2, (1, 2), append(2), DONE);
    assert_eq!(calls.edited(&[0, 1]).edited(&[0, 1, 2]).broken(), [Rule::RealTimeOrder]);
    let slow = Story::new().call(1, (1, 9), append(1), DONE).edited(&[0, 1]);
    let older_content_is_read_later = slow.read((2, 3), saw(&[0, 1])).read((4, 5), saw(&[0]));
    assert_eq!(older_content_is_read_later.broken(), [Rule::RealTimeOrder]);
}

#[test]
fn read_of_what_was_not_there_is_found() {
    for seen in [saw(&[0]), ObservedMemory::Content("torn".to_owned()), ObservedMemory::Absent] {
        let overwritten = Story::new().call(1, (1, 2), append(1), DONE).edited(&[0, 1]);
        assert_eq!(overwritten.read((3, 4), seen).broken(), [Rule::ReadIsCurrent]);
    }
}

#[test]
fn two_memories_at_one_path_are_found() {
    let create = Change::Create { path: PATH.to_owned(), content: lines(&[1]) };
    let mut story = Story::new().call(1, (1, 2), create, DONE).version(Operation::Created, Some(lines(&[1])));
    story.0.versions[1].memory_id = "mem_2".to_owned();
    assert!(story.broken().contains(&Rule::PathIsUnique));
}

#[test]
fn missing_and_unrequested_redactions_are_found() {
    assert_eq!(Story::new().call(1, (1, 2), redact("v0"), DONE).broken(), [Rule::RedactedAsAsked]);
    let mut unasked = Story::new().call(1, (1, 2), append(1), DONE).edited(&[0, 1]);
    let first = &mut unasked.0.versions[0];
    (first.content, first.is_redacted) = (None, true);
    assert!(unasked.broken().contains(&Rule::RedactedAsAsked));
}

#[test]
fn listing_that_differs_from_the_versions_is_found() {
    assert_eq!(Story::new().broken_with_heads(), [Rule::HeadsMatchVersions]);
    let mut story = Story::new();
    story.0.heads = vec![head(MEMORY, PATH, "other"), head("mem_2", PATH, "")];
    assert_eq!(story.broken_with_heads(), [Rule::HeadsMatchVersions; 2]);
}
