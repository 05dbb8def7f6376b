//! Batches: several operations in one commit.

mod limits;
mod repeated;

use keepsake_core::{ContentHash, MemoryId};
use keepsake_engine::{
    BatchStatus, EngineError, MemoryBatch, MemoryEdit, MemoryOperation, OnTaken, OperationResult,
    Precondition, ShownMemory, View,
};

use crate::test_engine::{TestEngine, edit_of};

crate::on_every_backend! {
    each_kind_of_operation_is_done_in_one_commit,
    refused_operation_refuses_an_atomic_batch,
    refused_operations_are_left_out_of_a_batch_that_is_not_atomic,
    operations_on_one_memory_or_path_are_refused,
    path_freed_by_a_batch_is_still_taken_within_it,
    batch_pin_respects_its_precondition,
    batch_without_changes_writes_nothing,
}

fn hash(text: &str) -> ContentHash {
    ContentHash::of(text.as_bytes())
}

fn put(path: &str, content: &str, on_taken: OnTaken) -> MemoryOperation {
    MemoryOperation::Put {
        path: path.to_owned(),
        content: content.to_owned(),
        pinned: None,
        on_taken,
        expected: None,
    }
}

fn create(path: &str, content: &str) -> MemoryOperation {
    put(path, content, OnTaken::Refuse)
}

fn upsert(path: &str, content: &str) -> MemoryOperation {
    put(path, content, OnTaken::Replace)
}

fn upsert_if(path: &str, content: &str, before: &str) -> MemoryOperation {
    MemoryOperation::Put {
        path: path.to_owned(),
        content: content.to_owned(),
        pinned: Some(true),
        on_taken: OnTaken::Replace,
        expected: Some(hash(before)),
    }
}

fn update(memory: &ShownMemory, edit: MemoryEdit) -> MemoryOperation {
    MemoryOperation::Update {
        memory_id: memory.memory.head.memory_id,
        content: edit.content,
        path: edit.path,
        pinned: edit.pinned,
        precondition: edit.precondition,
    }
}

fn pin(memory: &ShownMemory, precondition: Option<Precondition>) -> MemoryOperation {
    let edit = edit_of(None, None, precondition);
    let pinned = Some(true);
    update(memory, MemoryEdit { pinned, ..edit })
}

fn delete(memory: &ShownMemory, expected: Option<&str>) -> MemoryOperation {
    MemoryOperation::Delete {
        memory_id: memory.memory.head.memory_id,
        expected: expected.map(hash),
    }
}

const fn atomic(operations: Vec<MemoryOperation>) -> MemoryBatch {
    MemoryBatch {
        operations,
        is_atomic: true,
        idempotency: None,
    }
}

const fn each(operations: Vec<MemoryOperation>) -> MemoryBatch {
    MemoryBatch {
        operations,
        is_atomic: false,
        idempotency: None,
    }
}

impl TestEngine {
    async fn batch(&self, batch: MemoryBatch) -> Result<Vec<OperationResult>, EngineError> {
        let memories = &self.engine.memories;
        memories.batch(&self.principal, self.store_id, batch).await
    }
}

/// A result as text: the status and the path, or the error.
fn told(result: &OperationResult) -> String {
    let (status, shown) = match &result.outcome {
        Ok(done) => done,
        Err(error) => return error.to_string(),
    };
    let status = match status {
        BatchStatus::Created => "created",
        BatchStatus::Updated => "updated",
        BatchStatus::Unchanged => "unchanged",
        BatchStatus::Deleted => "deleted",
    };
    let path = shown.as_ref().map_or("", |shown| shown.memory.head.path.as_str());
    let pin = if shown.as_ref().is_some_and(|shown| shown.memory.is_pinned) {
        " pinned"
    } else {
        ""
    };
    format!("{status} {path}{pin}").trim_end().to_owned()
}

fn all_told(results: &[OperationResult]) -> Vec<String> {
    results.iter().map(told).collect()
}

const TAKEN: &str = "another memory exists at the path: `/taken`";
const NOT_FOUND: &str = "the memory was not found";
const DIFFERS: &str = "the precondition does not hold: the memory has other content than expected";

async fn each_kind_of_operation_is_done_in_one_commit(setup: TestEngine) {
    let mut made = Vec::new();
    for name in [
        "replaced", "same", "edited", "moved", "pinned", "deleted", "expected",
    ] {
        made.push(setup.make(&format!("/{name}"), name).await);
    }
    let before = setup.operations().await.len();
    let results = setup
        .batch(atomic(vec![
            create("/new/a", "one"),
            put("/new/b", "two", OnTaken::RefuseAsPrecondition),
            upsert("/new/c", "three"),
            upsert("/replaced", "four"),
            upsert("/same", "same"),
            upsert_if("/expected", "five", "expected"),
            update(
                &made[2],
                edit_of(
                    Some("six"),
                    None,
                    Some(Precondition::ContentSha256(hash("edited"))),
                ),
            ),
            update(
                &made[3],
                edit_of(None, Some("/new/d"), Some(Precondition::NotExists)),
            ),
            pin(&made[4], None),
            delete(&made[5], Some("deleted")),
        ]))
        .await
        .unwrap();
    assert_eq!(
        all_told(&results),
        [
            "created /new/a",
            "created /new/b",
            "created /new/c",
            "updated /replaced",
            "unchanged /same",
            "updated /expected pinned",
            "updated /edited",
            "updated /new/d",
            "updated /pinned pinned",
            "deleted",
        ]
    );
    let operations = setup.operations().await;
    assert_eq!(operations.len() - before, 8, "{operations:?}");
    // The answer shows the same as a read.
    for result in &results {
        let (_, shown) = result.outcome.as_ref().unwrap();
        let Some(shown) = shown else { continue };
        assert_eq!(setup.read(shown, View::Basic).await, **shown);
        assert_eq!(result.memory_id, Some(shown.memory.head.memory_id));
    }
    assert_eq!(setup.content_of(&made[0]).await, "four");
    assert_eq!(results[9].memory_id, Some(made[5].memory.head.memory_id));
    assert!(setup.head("/deleted").await.is_none());
    assert!(setup.head("/moved").await.is_none());
}

async fn refused_operation_refuses_an_atomic_batch(setup: TestEngine) {
    let taken = setup.make("/taken", "one").await;
    let gone = setup.make("/gone", "two").await;
    setup.delete(&gone, None).await.unwrap();
    let before = setup.operations().await;
    for (operation, refusal) in [
        (create("/taken", "x"), TAKEN),
        (
            put("/taken", "x", OnTaken::RefuseAsPrecondition),
            "the precondition `not_exists` does not hold: a memory exists at `path`",
        ),
        (
            create("/taken/below", "x"),
            "a parent of the path is a memory, not a directory: `/taken`",
        ),
        (upsert_if("/taken", "x", "other"), DIFFERS),
        (
            upsert_if("/free", "x", "other"),
            "the precondition does not hold: no memory exists at `path`",
        ),
        (delete(&taken, Some("other")), DIFFERS),
        (delete(&gone, None), NOT_FOUND),
        (update(&gone, edit_of(Some("x"), None, None)), NOT_FOUND),
        (create("no path", "x"), "`path` must start with `/`"),
        (create("/nul", "\0"), "`content` contains a NUL character"),
    ] {
        let batch = vec![create("/new", "one"), operation.clone(), create("/other", "two")];
        let refused = setup.batch(atomic(batch)).await.unwrap_err();
        let EngineError::OfOperation {
            operation: place,
            refusal: why,
        } = &refused
        else {
            panic!("{operation:?}: {refused:?}");
        };
        assert_eq!(*place, 1, "{operation:?}");
        assert!(why.to_string().starts_with(refusal), "{operation:?}: {why}");
    }
    assert_eq!(setup.operations().await, before);
    assert!(setup.head("/new").await.is_none());
}

async fn refused_operations_are_left_out_of_a_batch_that_is_not_atomic(setup: TestEngine) {
    let taken = setup.make("/taken", "one").await;
    setup.make("/file", "one").await;
    let unknown = MemoryId::from_uuid(uuid::Uuid::from_u128(7));
    let results = setup
        .batch(each(vec![
            create("/taken", "x"),
            create("/a", "one"),
            MemoryOperation::Delete {
                memory_id: unknown,
                expected: None,
            },
            create("no path", "x"),
            update(&taken, edit_of(Some("new"), None, None)),
            create("/file/below", "x"),
        ]))
        .await
        .unwrap();
    let told = all_told(&results);
    assert_eq!(told[..3], [TAKEN, "created /a", NOT_FOUND]);
    assert!(told[3].starts_with("`path` "), "{}", told[3]);
    assert_eq!(told[4], "updated /taken");
    assert!(told[5].starts_with("a parent of the path"), "{}", told[5]);
    assert_eq!(results[2].memory_id, Some(unknown));
    assert_eq!(results[0].memory_id, None);
    let operations = setup.operations().await;
    assert_eq!(operations, ["modified", "created", "created", "created"]);
}

async fn operations_on_one_memory_or_path_are_refused(setup: TestEngine) {
    let memory = setup.make("/there", "one").await;
    let before = setup.operations().await;
    let edit = || update(&memory, edit_of(Some("new"), None, None));
    let path = "are about the same path";
    let id = "are about the same memory";
    let above = "need one path as a memory and as a directory";
    for (one, other, why) in [
        (create("/a", "x"), upsert("/a", "y"), path),
        (
            create("/a", "x"),
            update(&memory, edit_of(None, Some("/a"), None)),
            path,
        ),
        (edit(), delete(&memory, None), id),
        (edit(), upsert("/there", "y"), id),
        (create("/a", "x"), create("/a/b/c", "y"), above),
        (create("/a/b/c", "x"), create("/a", "y"), above),
    ] {
        for is_atomic in [true, false] {
            let batch = MemoryBatch {
                is_atomic,
                ..atomic(vec![create("/other", ""), one.clone(), other.clone()])
            };
            let refused = setup.batch(batch).await.unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("`operations` 1 and 2 {why}")),
                "{refused}"
            );
        }
    }
    for count in [0, 501] {
        let batch = (0..count).map(|number| create(&format!("/{number}"), ""));
        let refused = setup.batch(each(batch.collect())).await.unwrap_err();
        assert_eq!(refused.to_string(), "`operations` must be 1 to 500 operations");
    }
    assert_eq!(setup.operations().await, before);
}

async fn path_freed_by_a_batch_is_still_taken_within_it(setup: TestEngine) {
    let memory = setup.make("/taken", "one").await;
    let below = setup.make("/dir/only", "two").await;
    let batch = vec![
        delete(&memory, None),
        create("/taken", "x"),
        delete(&below, None),
        create("/dir", "y"),
    ];
    let told = all_told(&setup.batch(each(batch)).await.unwrap());
    assert_eq!(told[..3], ["deleted", TAKEN, "deleted"]);
    assert!(told[3].starts_with("the path is a directory"), "{}", told[3]);
    let again = all_told(
        &setup
            .batch(each(vec![create("/taken", "x"), create("/dir", "y")]))
            .await
            .unwrap(),
    );
    assert_eq!(again, ["created /taken", "created /dir"]);
}

async fn batch_pin_respects_its_precondition(setup: TestEngine) {
    let one = setup.make("/one", "one").await;
    let other = setup.make("/other", "two").await;
    let expects = |text| Some(Precondition::ContentSha256(hash(text)));
    let refused = setup
        .batch(atomic(vec![
            pin(&one, expects("one")),
            pin(&other, expects("no")),
        ]))
        .await;
    assert!(
        matches!(refused, Err(EngineError::OfOperation { operation: 1, .. })),
        "{refused:?}"
    );
    assert!(!setup.read(&one, View::Basic).await.memory.is_pinned);
    let told = all_told(
        &setup
            .batch(each(vec![pin(&one, expects("one")), pin(&other, expects("no"))]))
            .await
            .unwrap(),
    );
    assert_eq!(told, ["updated /one pinned", DIFFERS]);
    let again = all_told(&setup.batch(each(vec![pin(&one, None)])).await.unwrap());
    assert_eq!(again, ["unchanged /one pinned"]);
    assert_eq!(setup.operations().await.len(), 2);
}

async fn batch_without_changes_writes_nothing(setup: TestEngine) {
    setup.make("/a", "one").await;
    let results = setup.batch(atomic(vec![upsert("/a", "one")])).await.unwrap();
    assert_eq!(all_told(&results), ["unchanged /a"]);
    let results = setup.batch(each(vec![create("/a", "two")])).await.unwrap();
    assert!(told(&results[0]).starts_with("another memory"), "{results:?}");
    assert_eq!(setup.operations().await, ["created"]);
}
