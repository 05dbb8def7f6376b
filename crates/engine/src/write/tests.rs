use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use keepsake_core::limits::LimitOverrides;
use keepsake_index::{FoundMemory, Index, MemoryTarget, Scope, SqliteIndex};

use super::*;
use crate::{Engine, EngineOptions, ManualClock, MemoryEdit, NewKey, NewMemory, NewTenant, OnTaken, View};

struct TestEngine {
    engine: Engine,
    other: Engine,
    clock: Arc<ManualClock>,
    principal: Arc<Principal>,
    store_id: StoreId,
    memory_id: MemoryId,
    _folder: tempfile::TempDir,
}

impl TestEngine {
    /// Two replicas, and a memory at `/a`.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("index.db").display());
        let index = Index::from(SqliteIndex::open(&url).await.unwrap());
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let replica = || {
            let options = EngineOptions { clock: clock.clone(), ..EngineOptions::default() };
            Engine::new(index.clone(), None, options)
        };
        let (engine, other) = (replica(), replica());
        let new =
            NewTenant { name: "tests".to_owned(), external_id: None, limits: LimitOverrides::default() };
        let tenant_id = engine.operator.tenants.create(new).await.unwrap().tenant_id;
        let new = NewKey {
            tenant_id,
            name: "tests".to_owned(),
            scopes: Scope::ALL.to_vec(),
            store_ids: None,
            expires_at: None,
        };
        let (_, secret) = engine.operator.keys.create(new).await.unwrap();
        let principal = engine.auth.authenticate(secret.expose()).await.unwrap();
        let store = engine.operator.create_store(tenant_id, "notes").await.unwrap();
        let new = NewMemory {
            path: "/a".to_owned(),
            content: "one".to_owned(),
            expires_at: None,
            on_taken: OnTaken::Refuse,
            view: View::Basic,
            idempotency: None,
        };
        let made = engine.memories.create(&principal, store.store_id, new).await.unwrap();
        Self {
            engine,
            other,
            clock,
            principal,
            store_id: store.store_id,
            memory_id: made.memory.head.memory_id,
            _folder: folder,
        }
    }

    async fn run(&self, change: &Racing<'_>) -> Result<Outcome<FoundMemory>, EngineError> {
        let writer = &self.engine.memories.writer;
        writer.write(&self.principal, self.store_id, None).run(change).await
    }

    /// Another replica writes a new version.
    async fn race(&self, content: u32) {
        let edit = MemoryEdit {
            content: Some(content.to_string()),
            path: None,
            pinned: None,
            expires_at: None,
            precondition: None,
            view: View::Basic,
            idempotency: None,
        };
        self.other.memories.update(&self.principal, self.store_id, self.memory_id, edit).await.unwrap();
    }

    async fn claim(&self, replica: &Engine, lasts: Duration) {
        let now = self.engine.context.now();
        let (index, replica) = (&self.engine.context.index, replica.context.replica);
        let tenant_id = self.principal.tenant_id;
        let claim = index.memories.claim_edit(
            tenant_id,
            self.store_id,
            self.memory_id,
            replica,
            now,
            now.plus(lasts),
        );
        assert!(claim.await.unwrap());
    }
}

/// Deletes the memory, or renames it; something happens after each read.
struct Racing<'a> {
    memory_id: MemoryId,
    to: Option<&'static str>,
    reads: AtomicU32,
    after_read: Box<dyn Fn(u32, Head) -> BoxFuture<'a, ()> + Send + Sync + 'a>,
}

impl Change for Racing<'_> {
    type Read = FoundMemory;
    type Error = EngineError;

    async fn read(&self, write: &Write<'_>) -> Result<FoundMemory, EngineError> {
        let found = write.memory(self.memory_id).await?;
        let MemoryTarget::Live(memory) = &found.target else {
            panic!("{found:?}");
        };
        let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        (self.after_read)(number, memory.head.clone()).await;
        Ok(found)
    }

    fn decide(&self, read: &FoundMemory) -> Result<Decision, EngineError> {
        let MemoryTarget::Live(memory) = &read.target else {
            panic!("{read:?}");
        };
        let head = memory.head.clone();
        let proposed = match self.to {
            Some(to) => Proposed::rename(head, MemoryPath::parse(to).unwrap()),
            None => Proposed::delete(head),
        };
        Ok(Decision::change(Some(read.store), proposed))
    }

    async fn refused(
        &self,
        _: &Write<'_>,
        _: &FoundMemory,
        refusal: Refusal,
    ) -> Result<Decision, EngineError> {
        match refusal {
            Refusal::Contended => Err(EngineError::Contended),
            refusal => panic!("{refusal:?}"),
        }
    }
}

#[tokio::test]
async fn change_that_lost_a_race_claims_the_memory() {
    for to in [None, Some("/b")] {
        let test = TestEngine::new().await;
        let change = Racing {
            memory_id: test.memory_id,
            to,
            reads: AtomicU32::new(0),
            after_read: Box::new(|read, head| {
                let test = &test;
                async move {
                    let claimed_by = head.claim.map(|claim| claim.replica);
                    if read == 1 {
                        assert_eq!(claimed_by, None);
                        test.race(2).await;
                    } else {
                        assert_eq!(claimed_by, Some(test.engine.context.replica), "{to:?}");
                    }
                }
                .boxed()
            }),
        };
        let outcome = test.run(&change).await.unwrap();
        assert!(matches!(outcome, Outcome::Written(..)));
        assert_eq!(change.reads.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn change_waits_while_another_replica_claims_the_memory() {
    for to in [None, Some("/b")] {
        let test = TestEngine::new().await;
        test.claim(&test.other, Duration::from_secs(1)).await;
        let change = Racing {
            memory_id: test.memory_id,
            to,
            reads: AtomicU32::new(0),
            after_read: Box::new(|read, _| {
                if read == 3 {
                    test.clock.advance(Duration::from_secs(1));
                }
                async {}.boxed()
            }),
        };
        test.run(&change).await.unwrap();
        assert_eq!(change.reads.load(Ordering::SeqCst), 3, "{to:?}");
    }
}

#[tokio::test]
async fn change_that_loses_every_race_is_contended() {
    let test = TestEngine::new().await;
    let change = Racing {
        memory_id: test.memory_id,
        to: None,
        reads: AtomicU32::new(0),
        after_read: Box::new(|read, head| {
            let test = &test;
            async move {
                // The other replica ignores the claim.
                if head.claim.is_some() {
                    test.clock.advance(Duration::from_secs(3));
                }
                test.race(read).await;
            }
            .boxed()
        }),
    };
    let outcome = test.run(&change).await;
    assert!(matches!(outcome, Err(EngineError::Contended)));
    assert_eq!(change.reads.load(Ordering::SeqCst), MAX_ATTEMPTS);
}
