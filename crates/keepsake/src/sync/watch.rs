//! `--watch`: a pass after each change of either side.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keepsake_config::{FailureClass, cli::Result};
use notify::event::{Event, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pass::Sync;
use super::{PRIVATE_FOLDER, Stop};
use crate::output::notice;
use crate::store_changes::{LastProblem, MAX_UNQUIET, QUIET, SAFETY_INTERVAL, StoreChanges};

/// The interval of passes for a credential that may not follow changes.
const BLIND_INTERVAL: Duration = Duration::from_secs(10);

/// Synchronises until a signal. Waits for a server that cannot be reached; fails only if
/// another attempt cannot help.
pub(super) async fn run(sync: &mut Sync, ending: &CancellationToken) -> Result<()> {
    let events = FolderEvents::watch(sync.folder.root());
    let mut changes = StoreChanges::default();
    let mut last_problem = LastProblem::none();
    let mut has_synchronised = false;
    notice("watching: Ctrl-C ends");
    loop {
        let round = async {
            // Opened before the pass: a change during the pass must cause another one.
            changes.open(&sync.store.api).await?;
            sync.run().await
        };
        let done = tokio::select! {
            done = round => done,
            () = ending.cancelled() => return Ok(()),
        };
        let problem = match done {
            Ok(()) => {
                has_synchronised = true;
                Ok(())
            }
            Err(stop) => Err(problem_of(stop, has_synchronised)?),
        };
        last_problem.note(problem, "synchronised again");
        let next_gone = sync.gone.as_ref().and_then(|gone| gone.next(Instant::now()));
        let wait = async {
            if last_problem.is_some() {
                return last_problem.wait().await;
            }
            tokio::select! {
                () = events.quiet_after_change() => {}
                () = changes.next(BLIND_INTERVAL) => {}
                () = tokio::time::sleep(SAFETY_INTERVAL) => {}
                () = sleep_until(next_gone) => {}
            }
        };
        tokio::select! {
            () = wait => {}
            () = ending.cancelled() => return Ok(()),
        }
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => pending().await,
    }
}

/// The text of a problem that may pass; the error is a failure that does not.
fn problem_of(stop: Stop, has_synchronised: bool) -> Result<String> {
    match stop {
        Stop::Emptied(failure) => Ok(failure.to_string()),
        Stop::Failed(failure) => match failure.class() {
            FailureClass::Unavailable | FailureClass::Conflict | FailureClass::Failed => {
                Ok(failure.to_string())
            }
            // The settings were right: a proxy may answer for a while in place of the server.
            FailureClass::Usage if has_synchronised => Ok(failure.to_string()),
            FailureClass::Usage | FailureClass::NotFound | FailureClass::NotAllowed => Err(failure),
        },
    }
}

/// Changes of files, as the operating system reports them.
struct FolderEvents {
    changed: Arc<Notify>,
    /// Reports changes until it is dropped.
    _watcher: Option<RecommendedWatcher>,
}

impl FolderEvents {
    /// Watches a folder; where that is not possible, only the interval remains.
    fn watch(root: &Path) -> Self {
        let changed = Arc::new(Notify::new());
        let watcher = Self::watcher(root, Arc::clone(&changed)).inspect_err(|error| {
            notice(&format!(
                "the folder cannot be watched ({error}): it is looked at every {} seconds",
                SAFETY_INTERVAL.as_secs()
            ));
        });
        Self { changed, _watcher: watcher.ok() }
    }

    fn watcher(root: &Path, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
        let private = root.join(PRIVATE_FOLDER);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_err() || event.is_ok_and(|event| is_change(&event, &private)) {
                changed.notify_one();
            }
        })?;
        watcher.watch(root, RecursiveMode::Recursive)?;
        Ok(watcher)
    }

    /// Waits for a change, and until the changes pause.
    async fn quiet_after_change(&self) {
        self.changed.notified().await;
        let quiet = async { while tokio::time::timeout(QUIET, self.changed.notified()).await.is_ok() {} };
        let _ = tokio::time::timeout(MAX_UNQUIET, quiet).await;
    }
}

/// Whether an event may be an edit. Reads and changes in the private folder are not.
fn is_change(event: &Event, private: &Path) -> bool {
    let is_read = matches!(event.kind, EventKind::Access(_));
    let is_own = !event.paths.is_empty() && event.paths.iter().all(|path| path.starts_with(private));
    event.need_rescan() || !(is_read || is_own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keepsake_config::Failure;
    use notify::event::{AccessKind, CreateKind};

    #[test]
    fn reads_and_internal_files_are_not_changes() {
        let private = Path::new("/d/.keepsake");
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let created = EventKind::Create(CreateKind::File);
        assert!(is_change(&event(created, "/d/a.md"), private));
        assert!(!is_change(&event(created, "/d/.keepsake/swap/x"), private));
        assert!(!is_change(&event(EventKind::Access(AccessKind::Any), "/d/a.md"), private));
    }

    #[test]
    fn wrong_url_ends_the_watch_only_before_the_first_pass() {
        for (class, has_synchronised, ends) in [
            (FailureClass::Usage, false, true),
            (FailureClass::Usage, true, false),
            (FailureClass::NotAllowed, true, true),
        ] {
            let stop = Stop::Failed(Failure::of_class(class, "a redirect"));
            assert_eq!(problem_of(stop, has_synchronised).is_err(), ends, "{class:?} {has_synchronised}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn burst_of_changes_causes_one_pass_and_an_endless_one_does_not_wait_for_ever() {
        let changed = Arc::new(Notify::new());
        let events = FolderEvents { changed: Arc::clone(&changed), _watcher: None };
        let noise = async |times: usize| {
            for _ in 0..times {
                changed.notify_one();
                tokio::time::sleep(QUIET / 2).await;
            }
        };
        let started = Instant::now();
        tokio::join!(events.quiet_after_change(), noise(5));
        assert!(started.elapsed() >= QUIET * 3, "{:?}", started.elapsed());
        let again = tokio::time::timeout(QUIET, events.quiet_after_change()).await;
        assert!(again.is_err(), "the burst caused another pass");
        let started = Instant::now();
        tokio::select! {
            () = events.quiet_after_change() => {}
            () = noise(usize::MAX) => {}
        }
        assert!(started.elapsed() <= MAX_UNQUIET + QUIET);
    }
}
