//! Jobs that wait travel together.
//!
//! A job that finds its lane free goes at once, by itself. While it is under way, further
//! jobs wait, and when it ends, all that wait go as one batch, up to a limit. So nothing
//! waits for a timer, and the more jobs there are, the larger are their batches.
//!
//! A lane may allow several batches at once. The second one begins only when a job has
//! waited for some time, as behind a connection that hangs.
//!
//! A batch of jobs that waited runs in a task of its own. A caller that goes away gives
//! up its own job only.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How many jobs go at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    /// Jobs of one batch.
    pub(crate) jobs: usize,
    /// Batches of one lane that run at the same time.
    pub(crate) places: usize,
    /// How long a job waits before it takes a second place, or a further one.
    pub(crate) patience: Duration,
}

/// Runs a batch; has one answer for each job, in their order.
type Run<J, A> = Box<dyn Fn(Vec<J>) -> BoxFuture<'static, Vec<A>> + Send + Sync>;

/// Jobs `J` with answers `A`, in a lane for each key `K`; cheap to clone.
pub(crate) struct Batches<K, J, A>(Arc<Inner<K, J, A>>);

struct Inner<K, J, A> {
    limits: BatchLimits,
    run: Run<J, A>,
    lanes: Mutex<HashMap<K, Lane<J, A>>>,
}

struct Lane<J, A> {
    taken_places: usize,
    waiting: VecDeque<Waiting<J, A>>,
}

struct Waiting<J, A> {
    job: J,
    answer: oneshot::Sender<A>,
}

impl<K, J, A> Clone for Batches<K, J, A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, J, A> fmt::Debug for Batches<K, J, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

impl<J, A> Default for Lane<J, A> {
    fn default() -> Self {
        Self {
            taken_places: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl<K, J, A> Batches<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    pub(crate) fn new<F>(limits: BatchLimits, run: impl Fn(Vec<J>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        Self(Arc::new(Inner {
            limits,
            run: Box::new(move |jobs| Box::pin(run(jobs))),
            lanes: Mutex::default(),
        }))
    }

    /// Runs a job in the lane of `key`, alone or in a batch. `None`: its batch ended
    /// without an answer.
    pub(crate) async fn run(&self, key: K, job: J) -> Option<A> {
        let entered = {
            let mut lanes = self.0.lanes();
            let lane = lanes.entry(key.clone()).or_default();
            if lane.taken_places == 0 {
                lane.taken_places = 1;
                Err(job)
            } else {
                let (answer, answered) = oneshot::channel();
                lane.waiting.push_back(Waiting { job, answer });
                Ok(answered)
            }
        };
        match entered {
            Ok(answered) => self.wait(&key, answered).await,
            Err(job) => {
                let place = Place::taken(&self.0, key);
                let mut answers = (self.0.run)(vec![job]).await;
                drop(place);
                answers.pop()
            }
        }
    }

    /// Waits for the answer of a job in a batch.
    async fn wait(&self, key: &K, mut answered: oneshot::Receiver<A>) -> Option<A> {
        if self.0.limits.places == 1 {
            return answered.await.ok();
        }
        loop {
            match timeout(self.0.limits.patience, &mut answered).await {
                Ok(answer) => return answer.ok(),
                // Dropping the place passes it on to the jobs that wait.
                Err(_) => drop(self.take_another_place(key)),
            }
        }
    }

    fn take_another_place(&self, key: &K) -> Option<Place<K, J, A>> {
        let mut lanes = self.0.lanes();
        let lane = lanes.get_mut(key)?;
        let is_free = lane.taken_places < self.0.limits.places && !lane.waiting.is_empty();
        is_free.then(|| {
            lane.taken_places += 1;
            Place::taken(&self.0, key.clone())
        })
    }
}

impl<K, J, A> Inner<K, J, A> {
    fn lanes(&self) -> MutexGuard<'_, HashMap<K, Lane<J, A>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a lane; dropping it passes it on to the jobs that wait.
struct Place<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    inner: Arc<Inner<K, J, A>>,
    key: K,
    is_given_back: bool,
}

impl<K, J, A> Place<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    fn taken(inner: &Arc<Inner<K, J, A>>, key: K) -> Self {
        Self {
            inner: Arc::clone(inner),
            key,
            is_given_back: false,
        }
    }

    /// Takes the jobs that wait, up to the limit; gives the place back if no job does.
    fn next_batch(&mut self) -> Option<Vec<Waiting<J, A>>> {
        let mut lanes = self.inner.lanes();
        let lane = lanes.get_mut(&self.key)?;
        let mut batch = Vec::new();
        while batch.len() < self.inner.limits.jobs
            && let Some(waiting) = lane.waiting.pop_front()
        {
            // The caller of a closed one went away before its job began.
            if !waiting.answer.is_closed() {
                batch.push(waiting);
            }
        }
        if !batch.is_empty() {
            return Some(batch);
        }
        self.is_given_back = true;
        lane.taken_places -= 1;
        if lane.taken_places == 0 {
            lanes.remove(&self.key);
        }
        None
    }

    /// Runs batches until no job waits.
    async fn go_on(mut self, mut batch: Vec<Waiting<J, A>>) {
        loop {
            let (jobs, callers): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .map(|waiting| (waiting.job, waiting.answer))
                .unzip();
            let answers = (self.inner.run)(jobs).await;
            for (caller, answer) in callers.into_iter().zip(answers) {
                // The caller may have gone away.
                let _ = caller.send(answer);
            }
            match self.next_batch() {
                Some(next) => batch = next,
                None => return,
            }
        }
    }
}

impl<K, J, A> Drop for Place<K, J, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    A: Send + 'static,
{
    fn drop(&mut self) {
        if self.is_given_back {
            return;
        }
        // After the end of the runtime no caller waits for an answer.
        if let Some(batch) = self.next_batch()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(Self::taken(&self.inner, self.key.clone()).go_on(batch));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    type Numbers = Batches<u8, u32, (u32, usize)>;

    /// Answers a number with itself and the size of its batch, once a permit is there for
    /// the batch. A batch that contains 13 panics.
    fn numbers(limits: BatchLimits) -> (Numbers, Arc<Semaphore>, Arc<AtomicUsize>) {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (of_run, begun_of_run) = (Arc::clone(&gate), Arc::clone(&begun));
        let batches = Batches::new(limits, move |jobs: Vec<u32>| {
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

    const ONE_PLACE: BatchLimits = BatchLimits {
        jobs: 3,
        places: 1,
        patience: Duration::from_secs(1),
    };

    fn is_empty(batches: &Numbers) -> bool {
        batches.0.lanes().is_empty()
    }

    #[tokio::test]
    async fn lone_job_goes_at_once_and_those_that_wait_go_together() {
        let (batches, gate, begun) = numbers(ONE_PLACE);
        let mut calls: Vec<_> = (0..5).map(|job| Box::pin(batches.run(0, job))).collect();
        for call in &mut calls {
            assert!(futures::poll!(call).is_pending());
        }
        assert_eq!(begun.load(Ordering::SeqCst), 1, "the first did not wait");
        gate.add_permits(3);
        let answers: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
        assert_eq!(answers, [(0, 1), (1, 3), (2, 3), (3, 3), (4, 1)]);
        assert!(is_empty(&batches));
    }

    #[tokio::test]
    async fn lanes_run_side_by_side() {
        let (batches, gate, begun) = numbers(ONE_PLACE);
        let mut calls: Vec<_> = [(0, 1), (0, 2), (7, 3)]
            .map(|(lane, job)| Box::pin(batches.run(lane, job)))
            .into();
        for call in &mut calls {
            assert!(futures::poll!(call).is_pending());
        }
        assert_eq!(begun.load(Ordering::SeqCst), 2, "only the second of lane 0 waits");
        gate.add_permits(3);
        let answers: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
        assert_eq!(answers, [(1, 1), (2, 1), (3, 1)]);
        assert!(is_empty(&batches));
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_that_wait_long_take_another_place() {
        let (batches, gate, begun) = numbers(BatchLimits {
            places: 2,
            ..ONE_PLACE
        });
        let calls = (0..3).map(|job| batches.run(0, job));
        let mut calls = Box::pin(join_all(calls));
        assert!(futures::poll!(&mut calls).is_pending());
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        // The clock advances when nothing else can happen.
        assert!(timeout(Duration::from_mins(1), &mut calls).await.is_err());
        assert_eq!(begun.load(Ordering::SeqCst), 2, "both that waited went together");
        let late = timeout(Duration::from_mins(1), batches.run(0, 3)).await;
        assert!(late.is_err(), "there are two places");
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        gate.add_permits(2);
        let answers: Vec<_> = calls.await.into_iter().flatten().collect();
        assert_eq!(answers, [(0, 1), (1, 2), (2, 2)]);
        assert!(is_empty(&batches));
    }

    #[tokio::test]
    async fn caller_that_goes_away_takes_no_other_with_it() {
        let (batches, gate, begun) = numbers(ONE_PLACE);
        let mut calls: Vec<_> = (0..4).map(|job| Box::pin(batches.run(0, job))).collect();
        for call in &mut calls {
            assert!(futures::poll!(call).is_pending());
        }
        let last = calls.pop().unwrap();
        // A job that waits, and the job that runs.
        drop(calls.remove(1));
        drop(calls.remove(0));
        gate.add_permits(1);
        assert_eq!(join_all(calls).await, [Some((2, 2))]);
        assert_eq!(last.await, Some((3, 2)));
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        assert!(is_empty(&batches));
    }

    #[tokio::test]
    async fn batch_that_panics_answers_nobody_and_keeps_no_place() {
        let (batches, gate, _) = numbers(ONE_PLACE);
        let mut calls: Vec<_> = [1, 13, 14, 15, 16]
            .map(|job| Box::pin(batches.run(0, job)))
            .into();
        for call in &mut calls {
            assert!(futures::poll!(call).is_pending());
        }
        gate.add_permits(3);
        let answers = join_all(calls).await;
        assert_eq!(answers, [Some((1, 1)), None, None, None, Some((16, 1))]);
        assert!(is_empty(&batches));
    }
}
