//! Random histories of two replicas that read, write and pin memories; one of them
//! records its reads late. A memory that was used within its period never expires,
//! and every unused memory is deleted by the next run.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::Timestamp;
use keepsake_engine::jobs::{ExpireUnused, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineError, MemoryEdit, ShownMemory, StoreEdit, View};
use keepsake_index::LIVES_FOR;
use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::test_engine::{TestEngine, edit_of};

crate::on_both_databases! {
    expiry_is_exact_for_random_histories,
}

const MEMORIES: usize = 4;
const HISTORIES: usize = 8;
const PERIOD: Duration = Duration::from_hours(30 * 24);
/// Stands for the second replica where it lives and cannot write its reads.
const SECOND: Uuid = Uuid::from_u128(2);

#[derive(Debug, Clone)]
enum Step {
    /// Reads a memory, by the first or the second replica.
    Read(usize, bool),
    Write(usize),
    Pin(usize, bool),
    /// The second replica writes its reads.
    Flush,
    Hours(u64),
    Seconds(u64),
    Run,
}

fn any_step() -> impl Strategy<Value = Step> {
    let memory = 0..MEMORIES;
    prop_oneof![
        5 => (memory.clone(), any::<bool>()).prop_map(|(memory, second)| Step::Read(memory, second)),
        2 => memory.clone().prop_map(Step::Write),
        1 => (memory, any::<bool>()).prop_map(|(memory, pinned)| Step::Pin(memory, pinned)),
        3 => Just(Step::Flush),
        5 => (1..400_u64).prop_map(Step::Hours),
        3 => (1..80_u64).prop_map(Step::Seconds),
        5 => Just(Step::Run),
    ]
}

/// What is known of a memory besides the index.
struct Life {
    memory: ShownMemory,
    /// Every sign of it.
    signs: Vec<Timestamp>,
    is_pinned: bool,
    is_over: bool,
}

impl Life {
    /// Whether it was over by a time, for all that had happened by another.
    fn was_over(&self, by: Timestamp, known: Timestamp) -> bool {
        let last = self.signs.iter().filter(|sign| **sign <= known).max();
        !self.is_pinned && last.is_some_and(|last| last.plus(PERIOD) <= by)
    }
}

struct History<'a> {
    setup: &'a TestEngine,
    second: Engine,
    second_wrote_at: Timestamp,
    lives: Vec<Life>,
    expired: usize,
}

impl History<'_> {
    async fn step(&mut self, step: &Step) {
        let setup = self.setup;
        // Two runs that begin at the same moment would be one slot.
        setup.clock.advance(Duration::from_micros(1));
        match *step {
            Step::Read(memory, by_second) => self.read(memory, by_second).await,
            Step::Write(memory) => {
                let text = setup.clock.now().to_rfc3339();
                self.edit(memory, edit_of(Some(&text), None, None), true).await;
            }
            Step::Pin(memory, pinned) => {
                let pin = MemoryEdit { pinned: Some(pinned), ..edit_of(None, None, None) };
                self.edit(memory, pin, false).await;
                self.lives[memory].is_pinned = pinned;
            }
            Step::Flush => {
                self.second.replica.flush().await.unwrap();
                self.second_wrote_at = setup.clock.now();
            }
            Step::Hours(hours) => setup.clock.advance(Duration::from_hours(hours)),
            Step::Seconds(seconds) => setup.clock.advance(Duration::from_secs(seconds)),
            Step::Run => self.run().await,
        }
    }

    async fn read(&mut self, memory: usize, by_second: bool) {
        let (setup, life) = (self.setup, &mut self.lives[memory]);
        if life.is_over {
            return;
        }
        let engine = if by_second { &self.second } else { &setup.engine };
        let memory_id = life.memory.memory.head.memory_id;
        engine.memories.get(&setup.principal, setup.store_id, memory_id, View::Full).await.unwrap();
        life.signs.push(setup.clock.now());
    }

    async fn edit(&mut self, memory: usize, edit: MemoryEdit, is_sign: bool) {
        let (setup, life) = (self.setup, &mut self.lives[memory]);
        if life.is_over {
            return;
        }
        setup.update(&life.memory, edit).await.unwrap();
        if is_sign {
            life.signs.push(setup.clock.now());
        }
    }

    async fn run(&mut self) {
        let (setup, now) = (self.setup, self.setup.clock.now());
        setup.index.replicas.beat(SECOND, "gateway", now, self.second_wrote_at).await.unwrap();
        let (job, none) = (Arc::new(ExpireUnused), CancellationToken::new());
        let ran = setup.engine.jobs.run(job, RunRequest::manual(false), &none).await.unwrap();
        assert!(matches!(ran, RunOutcome::Ran(_)), "{ran:?}");
        let is_stalled = self.second_wrote_at < now.minus(LIVES_FOR);
        for life in self.lives.iter_mut().filter(|life| !life.is_over) {
            let memory_id = life.memory.memory.head.memory_id;
            let found =
                setup.engine.memories.get(&setup.principal, setup.store_id, memory_id, View::Basic).await;
            life.is_over = matches!(found, Err(EngineError::MemoryNotFound));
            let until = self.second_wrote_at;
            if life.is_over {
                self.expired += 1;
                let rightly = !is_stalled && life.was_over(until, until);
                assert!(rightly, "it was used within its time: {:?}", life.signs);
            } else if !is_stalled {
                assert!(!life.was_over(until, now), "it is past its time: {:?}", life.signs);
            }
        }
    }
}

async fn expiry_is_exact_for_random_histories(setup: TestEngine) {
    let edit = StoreEdit { expires_unused_after: Some(PERIOD.as_secs()), ..StoreEdit::default() };
    setup.engine.stores.update(&setup.principal, setup.store_id, edit, None).await.unwrap();
    setup.clock.advance(Duration::from_hours(24));
    let histories = prop::collection::vec(any_step(), 50..90);
    let seed = Seed::new();
    let mut runner = seed.runner(Config::default());
    let mut expired = 0;
    for number in 0..HISTORIES {
        let steps = histories.new_tree(&mut runner).unwrap().current();
        let mut history = History {
            setup: &setup,
            second: setup.replica(),
            second_wrote_at: setup.clock.now(),
            lives: Vec::new(),
            expired: 0,
        };
        for memory in 0..MEMORIES {
            history.lives.push(Life {
                memory: setup.make(&format!("/{number}/{memory}.txt"), "a").await,
                signs: vec![setup.clock.now()],
                is_pinned: false,
                is_over: false,
            });
        }
        for step in &steps {
            history.step(step).await;
        }
        expired += history.expired;
    }
    assert!(expired > 0, "no memory expired: the histories are too short");
}
