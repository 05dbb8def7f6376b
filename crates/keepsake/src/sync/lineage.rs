//! Why a store no longer has a version that was synchronised.
//!
//! Either the version was removed on purpose, by an erasure, a redaction or the end of
//! its retention: its content must not come back. Or an older backup of the store was
//! restored: the folder may have the only copy. A removal is counted in the places among
//! the store's changes; a restored backup has fewer changes, or others.

use keepsake_config::cli::Result;
use keepsake_core::VersionId;
use keepsake_engine::ChangePlace;

use super::store::{Store, VersionState};
use crate::store_api::{Change, MAX_CHANGES};

/// A version's id is created before its commit, so ids may be in another order than commits. Two
/// versions in the wrong order were created within this time, unless a version is large or the store busy.
const USUAL_DISORDER_MILLIS: u128 = 100;
/// As [`USUAL_DISORDER_MILLIS`], also for large versions and busy stores.
const MAX_DISORDER_MILLIS: u128 = 60_000;

/// What was synchronised before a pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lineage {
    /// The newest version that was not found to be missing.
    pub(super) newest: Option<VersionId>,
    /// A place in the store's changes after all versions that were synchronised, if they are all of
    /// one history.
    pub(super) place: Option<ChangePlace>,
}

impl Lineage {
    /// The state of one of the versions; `missing` is what an earlier pass noted.
    /// `version_id` is `None` if an older keepsake wrote the state file.
    pub(super) async fn state_of(
        &self,
        store: &Store,
        version_id: Option<VersionId>,
        missing: Option<VersionState>,
    ) -> Result<VersionState> {
        let Some(version_id) = version_id else {
            let removals = store.newest_place().await?.and_then(|end| end.removals());
            return Ok(if removals == Some(0) { VersionState::Lost } else { VersionState::Unclear });
        };
        let known = store.recorded(version_id).await?.or(missing);
        if let Some(state) = known {
            return Ok(state);
        }
        // Read after the version, so that a removal in between is counted.
        let end = store.newest_place().await?;
        // If a later version of the same history is there, only this one was removed.
        let at_place = self.place.and_then(|place| place.version_id());
        let is_one_history = self.place.is_some() || end.is_none();
        let later = [self.newest.filter(|_| is_one_history), at_place];
        for later in later.into_iter().flatten().filter(|later| *later != version_id) {
            if matches!(store.recorded(later).await?, Some(VersionState::Kept | VersionState::Redacted)) {
                return Ok(VersionState::Removed);
            }
        }
        let Some(end) = end else {
            return Ok(VersionState::Unclear);
        };
        Ok(match (state_of_missing(self.place, end), self.place) {
            (VersionState::Removed, Some(place)) => {
                let newest = at_place.or(self.newest).unwrap_or(version_id);
                let changes = store.changes_around(place.seq(), end).await?;
                state_of_removed(version_id, newest, (place.seq(), end.seq()), &changes)
            }
            (VersionState::Lost, _) if end.removals() != Some(0) => {
                let changes = store.changes_around(end.seq(), end).await?;
                // A removal since the backup may have taken the version.
                let is_lost = was_never_there(version_id, end.seq(), &changes);
                if is_lost { VersionState::Lost } else { VersionState::Unclear }
            }
            (state, _) => state,
        })
    }
}

/// The state of a version that is missing together with all later ones. `before` is an
/// earlier place among the changes, after the version; `end` is the newest place.
fn state_of_missing(before: Option<ChangePlace>, end: ChangePlace) -> VersionState {
    let Some(removals) = end.removals() else {
        return VersionState::Unclear;
    };
    let removals_before = before.and_then(|before| before.removals());
    if removals == 0 || removals_before.is_some_and(|before| removals <= before) {
        VersionState::Lost
    } else if removals_before.is_some() && before.is_some_and(|before| before.seq() <= end.seq()) {
        VersionState::Removed
    } else {
        VersionState::Unclear
    }
}

/// The state of a version that seems to be removed. An earlier pass read the store up to `read_seq`,
/// after the version, where `newest_read` was the newest version. `changes` are those around `read_seq`;
/// `end_seq` is the store's newest sequence number.
fn state_of_removed(
    version_id: VersionId,
    newest_read: VersionId,
    (read_seq, end_seq): (i64, i64),
    changes: &[Change],
) -> VersionState {
    let is_newer = |than: VersionId, disorder: u128| {
        let until = created_at_millis(than) + disorder;
        let mut earlier = changes.iter().filter(|change| change.seq <= read_seq);
        earlier.any(|change| created_at_millis(change.version_id) > until)
    };
    if is_newer(newest_read, USUAL_DISORDER_MILLIS) {
        // A change of a restored history took the place of a lost one.
        VersionState::Unclear
    } else if is_newer(version_id, MAX_DISORDER_MILLIS)
        || end_seq == read_seq
        || changes.iter().any(|change| change.seq == read_seq.saturating_add(1))
    {
        VersionState::Removed
    } else {
        // The change after `read_seq` was removed, too, so a removal is only likely.
        VersionState::Likely
    }
}

/// Whether no change was removed from the present history at the time of a version.
fn was_never_there(version_id: VersionId, end_seq: i64, changes: &[Change]) -> bool {
    let at = created_at_millis(version_id);
    let is_older = |change: &&Change| created_at_millis(change.version_id) + MAX_DISORDER_MILLIS < at;
    let is_newer = |change: &&Change| created_at_millis(change.version_id) > at + MAX_DISORDER_MILLIS;
    let all = (end_seq < MAX_CHANGES).then_some(0);
    let Some(begin) = changes.iter().filter(is_older).map(|change| change.seq).max().or(all) else {
        return false;
    };
    let end =
        changes.iter().filter(is_newer).map(|change| change.seq).min().unwrap_or(end_seq.saturating_add(1));
    let found = changes.iter().filter(|change| begin < change.seq && change.seq < end).count();
    usize::try_from(end.saturating_sub(begin).saturating_sub(1)).is_ok_and(|written| written == found)
}

/// The time in the id of a version.
fn created_at_millis(version_id: VersionId) -> u128 {
    version_id.uuid().as_u128() >> 80
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn erased_version_is_told_from_a_lost_one() {
        for (places, state) in [
            ("7.2>7.3 7.2>9.4", VersionState::Removed),
            ("7.2>5.2 7.2>9.2 >6.0", VersionState::Lost),
            // A restored backup, and an erasure since then; servers of before do not count removals.
            ("7.2>6.3 >6.1 7.2>7 7>7.3", VersionState::Unclear),
        ] {
            for (before, now) in places.split(' ').map(|pair| pair.split_once('>').unwrap()) {
                let found = state_of_missing(before.parse().ok(), now.parse().unwrap());
                assert_eq!(found, state, "{before} {now}");
            }
        }
    }

    /// The version of a minute.
    fn version(minute: u128) -> VersionId {
        VersionId::from_uuid(Uuid::from_u128((minute * 60_000 + 1) << 80))
    }

    /// Changes by number and minute.
    fn changes(of: &[(i64, u128)]) -> Vec<Change> {
        let change = |&(seq, minute)| Change { seq, memory_id: String::new(), version_id: version(minute) };
        of.iter().map(change).collect()
    }

    #[test]
    fn removed_changes_before_a_place_are_told_from_those_of_a_restored_history() {
        // The place was 7, at minute 70; the missing version is of minute 50.
        for (now, found, state) in [
            (7, changes(&[(4, 40)]), VersionState::Removed),
            (9, changes(&[(4, 40), (8, 80), (9, 90)]), VersionState::Removed),
            (9, changes(&[(4, 40), (6, 60)]), VersionState::Removed),
            (9, changes(&[(4, 40), (9, 90)]), VersionState::Likely),
            (9, changes(&[(4, 40), (6, 80), (8, 90)]), VersionState::Unclear),
        ] {
            assert_eq!(state_of_removed(version(50), version(70), (7, now), &found), state, "{found:?}");
        }
    }

    #[test]
    fn version_was_never_there_if_no_change_of_its_time_is_missing() {
        for (now, found, was_never) in [
            (4, changes(&[(2, 20), (3, 30), (4, 40)]), true),
            (5, changes(&[(2, 20), (4, 40), (5, 90)]), true),
            (5, changes(&[(2, 20), (4, 40)]), false),
            (6, changes(&[(4, 40), (6, 90)]), false),
            (0, changes(&[]), true),
            (5_000, changes(&[(5_000, 90)]), false),
        ] {
            assert_eq!(was_never_there(version(50), now, &found), was_never, "{now} {found:?}");
        }
    }
}
