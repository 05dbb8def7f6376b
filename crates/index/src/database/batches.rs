//! Runs jobs that wait for the same resource together, in batches.
//!
//! A lane is the queue of one key. A job that finds its lane idle runs at once, by
//! itself. While it runs, further jobs wait; when it ends, all waiting jobs run as the
//! next batch, up to a limit. So no timer delays a job, and batches grow with the load.
//!
//! A lane may allow several batches at once. An extra batch begins only when a job has
//! waited for some time, as behind a connection that hangs. A job that has waited for
//! [`MAX_WAIT`] leaves the lane. If a batch gets no connection, all waiting jobs of its
//! lane fail with its error. So no caller waits longer for the lane than for a
//! connection.
//!
//! A batch of jobs that waited runs in a separate task, so a caller that goes away gives
//! up only its own job.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::{FromRow, Row};
use crate::IndexError;

/// How long a job waits to begin; equal to the time that a call waits for a connection.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(5);

/// Which jobs share a batch, and how many batches run.
#[derive(Debug)]
pub(crate) struct BatchRules<J, A> {
    /// Maximum number of jobs of one batch.
    pub(crate) jobs: usize,
    /// Maximum number of batches of one lane that run at the same time.
    pub(crate) max_running: usize,
    /// How long a job waits before the lane runs an extra batch; doubled after each.
    pub(crate) extra_batch_after: Duration,
    /// Whether a job may join a batch, which has at least one job.
    pub(crate) joins: fn(&[J], &J) -> bool,
    /// If this answer shows that all waiting jobs would fail too, the answer of each of
    /// them.
    pub(crate) answer_of_all: fn(&A) -> Option<A>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchFailure {
    /// The job waited for [`MAX_WAIT`] and has not begun.
    NotBegun,
    /// The batch ended without an answer; its effects are unknown.
    Lost,
}

/// Runs a batch; returns one answer for each job, in their order.
type Run<J, A> = Box<dyn Fn(Vec<J>) -> BoxFuture<'static, Vec<A>> + Send + Sync>;

/// Jobs `J` with answers `A`, in a lane for each key `K`; cheap to clone.
pub(crate) struct Batches<K, J, A>(Arc<Inner<K, J, A>>);

struct Inner<K, J, A> {
    rules: BatchRules<J, A>,
    run: Run<J, A>,
    lanes: Mutex<HashMap<K, Lane<J, A>>>,
}

struct Lane<J, A> {
    running: usize,
    /// The number for the next job that waits.
    next_number: u64,
    waiting: VecDeque<WaitingJob<J, A>>,
}

struct WaitingJob<J, A> {
    number: u64,
    job: J,
    answer: oneshot::Sender<A>,
}

/// Jobs of one batch, and their callers in the same order.
struct Batch<J, A> {
    jobs: Vec<J>,
    callers: Vec<oneshot::Sender<A>>,
}

impl<K, J, A> Clone for Batches<K, J, A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, J, A> fmt::Debug for Batches<K, J, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("jobs", &self.0.rules.jobs).finish_non_exhaustive()
    }
}

impl<J, A> Default for Lane<J, A> {
    fn default() -> Self {
        Self { running: 0, next_number: 0, waiting: VecDeque::new() }
    }
}

impl<K, J, A> Batches<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    pub(crate) fn new<F>(rules: BatchRules<J, A>, run: impl Fn(Vec<J>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        Self(Arc::new(Inner {
            rules,
            run: Box::new(move |jobs| Box::pin(run(jobs))),
            lanes: Mutex::default(),
        }))
    }

    pub(crate) async fn run(&self, key: K, job: J) -> Result<A, BatchFailure> {
        let entered = {
            let mut lanes = self.0.lanes.lock();
            let lane = lanes.entry(key.clone()).or_default();
            if lane.running == 0 {
                lane.running = 1;
                Err(job)
            } else {
                let (answer, answered) = oneshot::channel();
                let number = lane.next_number;
                lane.next_number += 1;
                lane.waiting.push_back(WaitingJob { number, job, answer });
                Ok((number, answered))
            }
        };
        match entered {
            Ok((number, answered)) => self.wait(&key, number, answered).await,
            Err(job) => {
                let slot = Slot::taken(&self.0, key);
                let mut answers = (self.0.run)(vec![job]).await;
                slot.share_failure(&answers);
                drop(slot);
                answers.pop().ok_or(BatchFailure::Lost)
            }
        }
    }

    pub(crate) fn is_running(&self, key: &K) -> bool {
        self.0.lanes.lock().contains_key(key)
    }

    async fn wait(
        &self,
        key: &K,
        number: u64,
        mut answered: oneshot::Receiver<A>,
    ) -> Result<A, BatchFailure> {
        let gives_up_at = Instant::now() + MAX_WAIT;
        let mut wait = self.0.rules.extra_batch_after;
        loop {
            let remaining = gives_up_at.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            match timeout(wait.min(remaining), &mut answered).await {
                Ok(answer) => return answer.map_err(|_| BatchFailure::Lost),
                // Dropping the extra slot starts a batch of the waiting jobs in it.
                Err(_) => drop(self.take_extra_slot(key)),
            }
            wait *= 2;
        }
        if self.leave(key, number) {
            return Err(BatchFailure::NotBegun);
        }
        // The job has begun, and its calls have their own time limits.
        answered.await.map_err(|_| BatchFailure::Lost)
    }

    fn take_extra_slot(&self, key: &K) -> Option<Slot<K, J, A>> {
        let mut lanes = self.0.lanes.lock();
        let lane = lanes.get_mut(key)?;
        let has_room = lane.running < self.0.rules.max_running && !lane.waiting.is_empty();
        has_room.then(|| {
            lane.running += 1;
            Slot::taken(&self.0, key.clone())
        })
    }

    /// Removes a waiting job from its lane; `false`: it has begun.
    fn leave(&self, key: &K, number: u64) -> bool {
        let mut lanes = self.0.lanes.lock();
        let Some(lane) = lanes.get_mut(key) else {
            return false;
        };
        let position = lane.waiting.iter().position(|waiting| waiting.number == number);
        position.is_some_and(|position| lane.waiting.remove(position).is_some())
    }
}

/// The right to run one batch at a time in a lane. Dropping it starts a task that runs
/// the waiting jobs, or frees the right.
struct Slot<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    inner: Arc<Inner<K, J, A>>,
    key: K,
    is_free: bool,
}

impl<K, J, A> Slot<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    fn taken(inner: &Arc<Inner<K, J, A>>, key: K) -> Self {
        Self { inner: Arc::clone(inner), key, is_free: false }
    }

    /// Takes waiting jobs, up to the limit; frees the slot if there are none.
    fn next_batch(&mut self) -> Option<Batch<J, A>> {
        let rules = &self.inner.rules;
        let mut lanes = self.inner.lanes.lock();
        let lane = lanes.get_mut(&self.key)?;
        let mut batch = Batch { jobs: Vec::new(), callers: Vec::new() };
        while let Some(waiting) = lane.waiting.pop_front() {
            // The caller went away before its job began.
            if waiting.answer.is_closed() {
                continue;
            }
            let is_full = batch.jobs.len() >= rules.jobs;
            if !batch.jobs.is_empty() && (is_full || !(rules.joins)(&batch.jobs, &waiting.job)) {
                lane.waiting.push_front(waiting);
                break;
            }
            batch.jobs.push(waiting.job);
            batch.callers.push(waiting.answer);
        }
        if !batch.jobs.is_empty() {
            return Some(batch);
        }
        self.is_free = true;
        lane.running -= 1;
        if lane.running == 0 {
            lanes.remove(&self.key);
        }
        None
    }

    /// Answers all waiting jobs, if an answer shows that they would fail too.
    fn share_failure(&self, answers: &[A]) {
        let answer_of_all = self.inner.rules.answer_of_all;
        let Some(failed) = answers.iter().find(|answer| answer_of_all(answer).is_some()) else {
            return;
        };
        let waiting = {
            let mut lanes = self.inner.lanes.lock();
            let lane = lanes.get_mut(&self.key);
            lane.map(|lane| std::mem::take(&mut lane.waiting))
        };
        for WaitingJob { answer, .. } in waiting.into_iter().flatten() {
            if let Some(failure) = answer_of_all(failed) {
                // The caller may have gone away.
                let _ = answer.send(failure);
            }
        }
    }

    /// Runs batches until no job waits.
    async fn go_on(mut self, mut batch: Batch<J, A>) {
        loop {
            let answers = (self.inner.run)(batch.jobs).await;
            self.share_failure(&answers);
            for (caller, answer) in batch.callers.into_iter().zip(answers) {
                // The caller may have gone away.
                let _ = caller.send(answer);
            }
            match self.next_batch() {
                Some(next) => batch = next,
                None => return,
            }
        }
    }

    /// Frees the slot, and drops the waiting jobs.
    fn abandon(&mut self) {
        let mut lanes = self.inner.lanes.lock();
        if let Some(lane) = lanes.get_mut(&self.key) {
            lane.waiting.clear();
            lane.running -= 1;
            if lane.running == 0 {
                lanes.remove(&self.key);
            }
        }
    }
}

impl<K, J, A> Drop for Slot<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    fn drop(&mut self) {
        if self.is_free {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                if let Some(batch) = self.next_batch() {
                    runtime.spawn(Self::taken(&self.inner, self.key.clone()).go_on(batch));
                }
            }
            // Without a runtime, nothing can run the waiting jobs.
            Err(_) => self.abandon(),
        }
    }
}

/// The row of one job of a batch; `element` is the index of the job.
pub(crate) struct Answer<T> {
    element: u64,
    /// A row that cannot be read fails only its own job.
    row: Result<T, IndexError>,
}

impl<T: FromRow> FromRow for Answer<T> {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self { element: row.get("element")?, row: row.read() })
    }
}

impl<T> Answer<T> {
    /// The job that the row answers, and the result.
    pub(crate) fn with_job<'a, J>(&'a mut self, jobs: &'a [J]) -> Option<(&'a J, &'a mut T)> {
        let job = jobs.get(usize::try_from(self.element).ok()?)?;
        Some((job, self.row.as_mut().ok()?))
    }
}

/// One answer for each of `count` jobs. If the read failed, every job gets the error.
pub(crate) fn answers_of<T>(
    read: Result<Vec<Answer<T>>, IndexError>,
    count: usize,
) -> Vec<Result<Option<T>, IndexError>> {
    match read {
        Ok(rows) => {
            let mut answers: Vec<_> = (0..count).map(|_| Ok(None)).collect();
            for Answer { element, row } in rows {
                let element = usize::try_from(element).unwrap_or(usize::MAX);
                if let Some(answer) = answers.get_mut(element) {
                    *answer = row.map(Some);
                }
            }
            answers
        }
        Err(error) => {
            let mut answers: Vec<_> = (1..count).map(|_| Err(error.copy())).collect();
            answers.push(Err(error));
            answers
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use futures::future::{LocalBoxFuture, join_all};
    use tokio::sync::Semaphore;

    use super::*;

    type Numbers = Batches<u8, u32, (u32, usize)>;

    /// Answers a number with itself and the size of its batch, once a permit is there for
    /// the batch. A batch that contains 13 panics, and 99 is the answer of all that wait.
    /// Numbers from 100 on never join a batch.
    fn numbers(rules: BatchRules<u32, (u32, usize)>) -> (Numbers, Arc<Semaphore>, Arc<AtomicUsize>) {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (of_run, begun_of_run) = (Arc::clone(&gate), Arc::clone(&begun));
        let batches = Batches::new(rules, move |jobs: Vec<u32>| {
            let (gate, begun) = (Arc::clone(&of_run), Arc::clone(&begun_of_run));
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                assert!(!jobs.contains(&13), "an unlucky batch");
                let size = jobs.len();
                jobs.into_iter().map(|job| (job, size)).collect()
            }
        });
        (batches, gate, begun)
    }

    const ONE_AT_A_TIME: BatchRules<u32, (u32, usize)> = BatchRules {
        jobs: 3,
        max_running: 1,
        extra_batch_after: Duration::from_secs(1),
        joins: |batch, next| batch[0] < 100 && *next < 100,
        answer_of_all: |answer| (answer.0 == 99).then_some(*answer),
    };

    fn is_empty(batches: &Numbers) -> bool {
        batches.0.lanes.lock().is_empty()
    }

    type Call<'a> = LocalBoxFuture<'a, Result<(u32, usize), BatchFailure>>;

    /// Calls that have begun, in their order, and wait for the gate.
    fn begin<'a>(batches: &'a Numbers, lane: u8, jobs: &[u32]) -> Vec<Call<'a>> {
        let begun = jobs.iter().map(|job| {
            let mut call = batches.run(lane, *job).boxed_local();
            assert!((&mut call).now_or_never().is_none());
            call
        });
        begun.collect()
    }

    #[tokio::test]
    async fn first_job_of_a_lane_runs_at_once_and_waiting_jobs_run_together() {
        let (batches, gate, begun) = numbers(ONE_AT_A_TIME);
        let mut calls = begin(&batches, 0, &[0, 1, 2, 3, 4]);
        assert_eq!(begun.load(Ordering::SeqCst), 1, "the first did not wait");
        calls.extend(begin(&batches, 7, &[5]));
        assert_eq!(begun.load(Ordering::SeqCst), 2, "nor did that of another lane");
        gate.add_permits(4);
        let answers: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
        assert_eq!(answers, [(0, 1), (1, 3), (2, 3), (3, 3), (4, 1), (5, 1)]);
        assert!(is_empty(&batches));
    }

    #[tokio::test(start_paused = true)]
    async fn long_wait_starts_another_batch() {
        let (batches, gate, begun) = numbers(BatchRules { max_running: 2, ..ONE_AT_A_TIME });
        let calls = (0..3).map(|job| batches.run(0, job));
        let mut calls = Box::pin(join_all(calls));
        assert!(futures::poll!(&mut calls).is_pending());
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        // The clock advances when nothing else can happen.
        assert!(timeout(Duration::from_mins(1), &mut calls).await.is_err());
        assert_eq!(begun.load(Ordering::SeqCst), 2, "both that waited went together");
        let began_at = Instant::now();
        assert_eq!(batches.run(0, 3).await, Err(BatchFailure::NotBegun), "two batches run");
        assert_eq!(began_at.elapsed(), MAX_WAIT);
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        gate.add_permits(2);
        let answers: Vec<_> = calls.await.into_iter().flatten().collect();
        assert_eq!(answers, [(0, 1), (1, 2), (2, 2)]);
        assert!(is_empty(&batches));
    }

    #[tokio::test]
    async fn waiting_jobs_share_the_fate_of_their_batch() {
        let lost = Err(BatchFailure::Lost);
        let apart = [(1, 1), (2, 1), (100, 1), (101, 1), (3, 2), (4, 2)].map(Ok);
        for (jobs, expected, batch_count) in [
            // Those that cannot join run separately, in order.
            ([1, 2, 100, 101, 3, 4], apart, 5),
            // A failure is the answer of all that wait.
            ([99, 2, 3, 4, 5, 6], [Ok((99, 1)); 6], 1),
            // A panic loses the answers of its batch, and frees its slot.
            ([1, 13, 14, 15, 16, 17], [Ok((1, 1)), lost, lost, lost, Ok((16, 2)), Ok((17, 2))], 3),
        ] {
            let (batches, gate, begun) = numbers(ONE_AT_A_TIME);
            let calls = begin(&batches, 0, &jobs);
            gate.add_permits(batch_count);
            assert_eq!(join_all(calls).await, expected);
            assert_eq!(begun.load(Ordering::SeqCst), batch_count);
            assert!(is_empty(&batches));
        }
    }

    #[test]
    fn slot_dropped_without_a_runtime_is_free_again() {
        let (batches, gate, _) = numbers(ONE_AT_A_TIME);
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let calls = runtime().block_on(async { begin(&batches, 0, &[1, 2]) });
        drop(calls);
        gate.add_permits(1);
        assert_eq!(runtime().block_on(batches.run(0, 3)), Ok((3, 1)));
        assert!(is_empty(&batches));
    }

    #[tokio::test]
    async fn cancelled_caller_cancels_only_its_own_job() {
        let (batches, gate, begun) = numbers(ONE_AT_A_TIME);
        let mut calls = begin(&batches, 0, &[0, 1, 2, 3]);
        let last = calls.pop().unwrap();
        // A job that waits, and the job that runs.
        drop(calls.remove(1));
        drop(calls.remove(0));
        gate.add_permits(1);
        assert_eq!(join_all(calls).await, [Ok((2, 2))]);
        assert_eq!(last.await, Ok((3, 2)));
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        assert!(is_empty(&batches));
    }
}
