//! Quotas of what tenants may have many of: sessions, keys, entries of the audit.

use futures::future::join_all;
use keepsake_core::{Actor, Timestamp};
use keepsake_index::{
    Audited, Auditor, Detail, KeyCreation, NewSession, OverQuota, REVOKED_KEYS_COUNT_FOR, SessionCreation,
    SessionLimits, SessionUpdate, StoreCreation,
};

use crate::place::{
    NOW, PLENTY, Place, after_seconds, audited, audited_by, by_nobody, by_tenant, new_key, new_store,
    new_tenant,
};
use crate::sessions::{UNLIMITED, change_within, new_session};
use crate::subject::Subject;

const DAY_SECONDS: i64 = 86_400;

async fn create(place: &Place, limits: &SessionLimits, new: &NewSession) -> SessionCreation {
    let by = by_tenant(NOW);
    let made = place
        .index
        .sessions
        .create(place.tenant_id, new, limits, None, &by);
    made.await.unwrap()
}

/// Sessions and their bytes, as the counters say and as the rows do.
async fn counted(place: &Place) -> [Vec<i64>; 2] {
    let counters = "SELECT sessions, session_bytes FROM tenant_counter WHERE tenant_id = $1";
    let rows = "SELECT count(*), CAST(coalesce(sum(description_bytes), 0) AS bigint) FROM session \
        WHERE tenant_id = $1 AND deleted_at IS NULL";
    let numbers = async |query| place.raw.numbers(query, &place.ids()[..1]).await.remove(0);
    [numbers(counters).await, numbers(rows).await]
}

fn three_sessions() -> SessionLimits {
    SessionLimits {
        sessions: 3,
        ..UNLIMITED
    }
}

pub(crate) async fn racing_sessions_do_not_pass_the_limit(subject: &Subject) {
    let place = Place::new(subject).await;
    let limits = three_sessions();
    let news: Vec<_> = (0..10).map(|_| new_session(&[place.store_id], NOW)).collect();
    let made = join_all(news.iter().map(|new| create(&place, &limits, new))).await;
    let created = made
        .iter()
        .filter(|made| matches!(made, SessionCreation::Created(_)));
    assert_eq!(created.count(), 3);
    for refused in made {
        let over = SessionCreation::OverQuota(OverQuota::Sessions { count: 4, limit: 3 });
        assert!(
            matches!(refused, SessionCreation::Created(_)) || refused == over,
            "{refused:?}"
        );
    }
    let [counters, rows] = counted(&place).await;
    assert_eq!((counters[0], &counters), (3, &rows));
    // Another tenant has its own.
    let theirs = Place::new(subject).await;
    let other = create(&theirs, &limits, &new_session(&[], NOW)).await;
    assert!(matches!(other, SessionCreation::Created(_)));
}

pub(crate) async fn only_a_deleted_session_frees_the_quota(subject: &Subject) {
    let place = Place::new(subject).await;
    let limits = three_sessions();
    let news: Vec<_> = (0..5).map(|_| new_session(&[place.store_id], NOW)).collect();
    for new in &news[..3] {
        let made = create(&place, &limits, new).await;
        assert!(matches!(made, SessionCreation::Created(_)));
    }
    let is_refused = async |new| matches!(create(&place, &limits, new).await, SessionCreation::OverQuota(_));
    change_within(&place, news[0].session_id, Detail::Archive, limits).await;
    assert!(is_refused(&news[3]).await);
    let (index, tenant_id) = (&place.index, place.tenant_id);
    for is_there in [true, false] {
        let by = by_tenant(NOW);
        let deleted = index.sessions.delete(tenant_id, news[1].session_id, &by).await;
        assert_eq!(deleted.unwrap(), is_there);
    }
    assert!(!is_refused(&news[3]).await);
    assert!(is_refused(&news[4]).await);
    // A limit that was lowered deletes nothing.
    let lower = SessionLimits {
        sessions: 1,
        ..UNLIMITED
    };
    assert!(matches!(
        create(&place, &lower, &news[4]).await,
        SessionCreation::OverQuota(OverQuota::Sessions { count: 4, limit: 1 })
    ));
    let [counters, rows] = counted(&place).await;
    assert_eq!((counters[0], &counters), (3, &rows));
}

pub(crate) async fn pruned_sessions_no_longer_count(subject: &Subject) {
    let place = Place::new(subject).await;
    let news: Vec<_> = (0..3).map(|_| new_session(&[], NOW)).collect();
    for new in &news {
        create(&place, &UNLIMITED, new).await;
    }
    change_within(&place, news[0].session_id, Detail::Archive, UNLIMITED).await;
    let (index, by) = (&place.index, by_tenant(NOW));
    let deleted = index
        .sessions
        .delete(place.tenant_id, news[1].session_id, &by)
        .await;
    assert!(deleted.unwrap());
    let long_after = after_seconds(100);
    let pruned = index
        .upkeep
        .prune(keepsake_index::Prunable::EndedSessions, long_after, 10, false)
        .await;
    assert_eq!(pruned.unwrap(), 2);
    let [counters, rows] = counted(&place).await;
    assert_eq!((counters[0], &counters), (1, &rows));
}

fn titled(title: &str) -> Detail {
    Detail::Describe {
        title: Some(title.to_owned()),
        metadata: Vec::new(),
        metadata_pairs_limit: 16,
    }
}

pub(crate) async fn total_bytes_of_session_descriptions_are_limited(subject: &Subject) {
    let place = Place::new(subject).await;
    let (first, second) = (new_session(&[], NOW), new_session(&[], NOW));
    create(&place, &UNLIMITED, &first).await;
    let [counters, rows] = counted(&place).await;
    assert_eq!(counters, rows);
    let one = u64::try_from(counters[1]).unwrap();
    let limits = SessionLimits {
        session_bytes: 2 * one,
        ..UNLIMITED
    };
    let of = |count| SessionLimits {
        session_bytes: count,
        ..UNLIMITED
    };
    assert_eq!(
        create(&place, &of(2 * one - 1), &second).await,
        SessionCreation::OverQuota(OverQuota::SessionBytes {
            size_bytes: 2 * one,
            limit_bytes: 2 * one - 1
        })
    );
    let made = create(&place, &limits, &second).await;
    assert!(matches!(made, SessionCreation::Created(_)));
    let longer = change_within(&place, first.session_id, titled("title and more"), limits).await;
    assert!(matches!(
        longer,
        SessionUpdate::OverQuota(OverQuota::SessionBytes { .. })
    ));
    let shorter = change_within(&place, first.session_id, titled("x"), of(1)).await;
    assert!(
        matches!(shorter, SessionUpdate::Done(_)),
        "one over its limit may shrink"
    );
    let [counters, rows] = counted(&place).await;
    assert_eq!((counters[1], &counters), (counters[1], &rows));
    assert_eq!(u64::try_from(counters[1]).unwrap(), 2 * one - 4);
    let longer = change_within(&place, first.session_id, titled("title"), limits).await;
    assert!(matches!(longer, SessionUpdate::Done(_)));
}

pub(crate) async fn racing_keys_do_not_pass_the_limit(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let index = &subject.index;
    let keys: Vec<_> = (0..8).map(|_| new_key(tenant_id)).collect();
    let create = async |number: usize, at: Timestamp| {
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(keys[number].api_key_id.uuid().as_bytes());
        let by = by_nobody(at);
        let made = index.keys.create(&keys[number], &secret, 3, None, &by).await;
        made.unwrap()
    };
    let made = join_all((0..6).map(|number| create(number, NOW))).await;
    let refused = KeyCreation::OverQuota(OverQuota::ApiKeys { count: 4, limit: 3 });
    let (created, others): (Vec<_>, Vec<_>) = made.iter().partition(|made| **made == KeyCreation::Created);
    assert_eq!((created.len(), others), (3, vec![&refused; 3]));
    // A key counts for a while after it was revoked.
    let mine = index.keys.list(tenant_id, None, 10).await.unwrap();
    let revoked = index
        .keys
        .revoke(tenant_id, mine[0].key.api_key_id, &audited())
        .await;
    revoked.unwrap().unwrap();
    let ends_at = NOW.plus(REVOKED_KEYS_COUNT_FOR);
    let before = Timestamp::from_micros(ends_at.as_micros() - 1);
    assert_eq!(create(6, before).await, refused);
    assert_eq!(create(6, ends_at).await, KeyCreation::Created);
    assert_eq!(create(7, ends_at).await, refused);
}

fn limited(at: Timestamp, entries_per_day: u64) -> Audited {
    let by = Auditor::Credential(Actor::User("ada".to_owned()));
    Audited {
        entries_per_day: Some(entries_per_day),
        ..audited_by(by, at)
    }
}

pub(crate) async fn racing_changes_do_not_pass_the_daily_audit_limit(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let index = &subject.index;
    let create = async |seconds| {
        let by = limited(after_seconds(seconds), 3);
        let made = index
            .stores
            .create(tenant_id, &new_store(), PLENTY, None, &by)
            .await;
        made.unwrap()
    };
    let made = join_all((0..8).map(create)).await;
    let refused = StoreCreation::OverQuota(OverQuota::AuditEntries { limit: 3 });
    let (created, others): (Vec<_>, Vec<_>) = made.iter().partition(|made| **made == StoreCreation::Created);
    assert_eq!((created.len(), others), (3, vec![&refused; 5]));
    // A clock that lags behind does not begin an older day.
    assert_eq!(create(-DAY_SECONDS).await, refused);
    assert_eq!(create(DAY_SECONDS).await, StoreCreation::Created);
    // The limit does not apply to the operator and to other tenants.
    let by_operator = index
        .stores
        .create(tenant_id, &new_store(), PLENTY, None, &audited())
        .await;
    assert_eq!(by_operator.unwrap(), StoreCreation::Created);
}

pub(crate) async fn revocations_and_deletions_ignore_the_daily_audit_limit(subject: &Subject) {
    let place = Place::new(subject).await;
    let (index, tenant_id, store_id) = (&place.index, place.tenant_id, place.store_id);
    let key = new_key(tenant_id);
    let made = index.keys.create(&key, &[7; 32], PLENTY, None, &audited()).await;
    assert_eq!(made.unwrap(), KeyCreation::Created);
    let (first, second) = (new_session(&[store_id], NOW), new_session(&[], NOW));
    create(&place, &UNLIMITED, &first).await;
    create(&place, &UNLIMITED, &second).await;
    let none = limited(NOW, 0);
    let again = || Audited {
        id: crate::place::next_uuid(),
        ..none.clone()
    };
    let new = new_session(&[], NOW);
    let refused = index
        .sessions
        .create(tenant_id, &new, &UNLIMITED, None, &again())
        .await;
    assert!(matches!(
        refused.unwrap(),
        SessionCreation::OverQuota(OverQuota::AuditEntries { limit: 0 })
    ));
    let refused = index
        .keys
        .create(&new_key(tenant_id), &[8; 32], PLENTY, None, &again())
        .await;
    assert!(matches!(
        refused.unwrap(),
        KeyCreation::OverQuota(OverQuota::AuditEntries { limit: 0 })
    ));
    let revoked = index.keys.revoke(tenant_id, key.api_key_id, &again()).await;
    assert!(revoked.unwrap().unwrap().revoked_at.is_some());
    assert!(
        index
            .sessions
            .delete(tenant_id, second.session_id, &again())
            .await
            .unwrap()
    );
    assert!(
        index
            .stores
            .archive(tenant_id, store_id, &again())
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        index
            .store_deletions
            .begin(tenant_id, store_id, &again())
            .await
            .unwrap()
    );
}
