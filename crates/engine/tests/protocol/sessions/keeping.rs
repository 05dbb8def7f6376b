//! Sessions keep what their stores hold while they are used.

use std::time::Duration;

use keepsake_index::Access;
use serde_json::json;

use super::call;
use crate::bed::{Bed, view};
use crate::expiry::{DAY, PERIOD, SECOND, expire, restore, run_on, short_of, with_period};

crate::on_both_databases! {
    memories_of_a_store_that_a_session_uses_live_on,
}

async fn memories_of_a_store_that_a_session_uses_live_on(bed: Bed) {
    with_period(&bed).await;
    let memory = bed.make("/a.md", "x").await;
    let stores = [(bed.store_id, Access::ReadOnly)];
    let [used, archived] = [bed.open(&stores).await, bed.open(&stores).await];
    bed.clock.advance(short_of(PERIOD, SECOND));
    // Who only looks what is there reads no memory.
    let replica = bed.replica();
    for session in [&used, &archived] {
        call(
            &replica,
            &bed.principal,
            session.session.session_id,
            view("/memories"),
        )
        .await;
    }
    let used_at = bed.engine_now();
    replica.flush_access().await.unwrap();
    bed.clock.advance(DAY);
    replica.flush_access().await.unwrap();
    bed.clock.advance(Duration::from_millis(1));
    // To the day after its last use, as far as all replicas have written.
    assert_eq!(expire(&bed).await, 1, "a day is over");
    restore(&bed, &memory).await.unwrap();

    bed.clock.advance(PERIOD);
    for session in [&used, &archived] {
        call(
            &replica,
            &bed.principal,
            session.session.session_id,
            view("/memories"),
        )
        .await;
    }
    assert!(bed.engine_now() > used_at);
    replica.flush_access().await.unwrap();
    bed.clock.advance(short_of(DAY, SECOND));
    replica.flush_access().await.unwrap();
    let dry = run_on(&bed.engine, true).await;
    assert_eq!(
        (&dry["in_use"], &dry["would_expire"]),
        (&json!(1), &json!(0)),
        "{dry}"
    );
    assert_eq!(expire(&bed).await, 0);
    let usage = bed
        .engine
        .store_usage(&bed.principal, bed.store_id, None)
        .await
        .unwrap();
    assert!(
        usage.in_use_until > Some(bed.engine_now()),
        "{:?}",
        usage.in_use_until
    );
    let session_id = archived.session.session_id;
    bed.engine
        .archive_session(&bed.principal, session_id)
        .await
        .unwrap();
    assert_eq!(expire(&bed).await, 0, "the other one uses it still");
    let session_id = used.session.session_id;
    bed.engine
        .archive_session(&bed.principal, session_id)
        .await
        .unwrap();
    assert_eq!(expire(&bed).await, 1, "archived sessions keep nothing");
    let usage = bed
        .engine
        .store_usage(&bed.principal, bed.store_id, None)
        .await
        .unwrap();
    assert_eq!(usage.in_use_until, None);
}
