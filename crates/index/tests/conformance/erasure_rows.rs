//! The row of an erasure: who asked, how far it is, and what it forgets.

use futures::future::join_all;
use keepsake_core::{StoreId, TenantId};
use keepsake_index::{
    Auditor, ErasureCreation, ErasureListing, Idempotency, MAX_OPEN_ERASURES, Selector, StoreChange,
};
use serde_json::{Map, json};

use crate::erasures::{LIMIT, ask, below, count, end, erase, found, new_erasure, step};
use crate::place::{NOW, Place, actor, after_seconds, by_tenant, created, next_uuid};
use crate::subject::{Raw, Subject};

fn call(scope: u8) -> Idempotency {
    Idempotency {
        scope_sha256: [scope; 32],
        request_sha256: [9; 32],
        since: after_seconds(-1000),
    }
}

pub(crate) async fn idempotency_records_are_erased_with_their_objects(subject: &Subject) {
    let place = Place::new(subject).await;
    for number in 0..20 {
        let at = if number % 2 == 0 { "/p" } else { "/q" };
        let mut commit = place.commit_of(vec![created(&format!("{at}/{number}"), 1)]);
        commit.idempotency = Some(call(number));
        place.run(&commit).await;
    }
    let change = StoreChange {
        name: Some("named".to_owned()),
        metadata: Vec::new(),
        metadata_pairs_limit: 16,
        now: NOW,
        description: None,
        policy: None,
        expires_unused_after: None,
    };
    let index = &place.index;
    index
        .stores
        .update(
            place.tenant_id,
            place.store_id,
            &change,
            Some(&call(100)),
            &by_tenant(NOW),
        )
        .await
        .unwrap();
    let erasure = erase(&place, below(&place, "/p/"), LIMIT).await;
    assert_eq!(erasure.receipt.idempotency_records, 10);
    assert_eq!(count(&place, "idempotency").await, 11);
    let erasure = erase(&place, Selector::Store(place.store_id), LIMIT).await;
    assert_eq!(erasure.receipt.idempotency_records, 11);
    assert_eq!(count(&place, "idempotency").await, 0);
}

pub(crate) async fn repeated_call_returns_its_erasure(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/p/a", 1).await;
    let first = new_erasure(below(&place, "/p/"));
    let index = &place.index;
    let tenant_id = place.tenant_id;
    let asked = index
        .erasures
        .create(tenant_id, &first, Some(&call(1)))
        .await
        .unwrap();
    assert_eq!(asked, ErasureCreation::Created);
    let replayed = ErasureCreation::Replayed {
        erasure_id: first.erasure_id,
    };
    let again = new_erasure(below(&place, "/p/"));
    let other_request = Idempotency {
        request_sha256: [8; 32],
        ..call(1)
    };
    assert_eq!(
        index
            .erasures
            .create(tenant_id, &again, Some(&call(1)))
            .await
            .unwrap(),
        replayed
    );
    let reused = index
        .erasures
        .create(tenant_id, &again, Some(&other_request))
        .await
        .unwrap();
    assert_eq!(reused, ErasureCreation::KeyReused);
    while !step(&place, first.erasure_id, LIMIT).await {}
    // The record of the call stays, without the hash of the request.
    let hashes =
        "SELECT CAST(count(*) AS TEXT) FROM idempotency WHERE tenant_id = $1 AND request_sha256 = $2";
    let hashes = hashes.replace(
        "$2",
        if matches!(place.raw, Raw::Sqlite(_)) {
            "zeroblob(32)"
        } else {
            "decode(repeat('00', 32), 'hex')"
        },
    );
    assert_eq!(
        place.raw.rows(&hashes, &[tenant_id.uuid()]).await[0][0].as_deref(),
        Some("1")
    );
    assert_eq!(
        index
            .erasures
            .create(tenant_id, &again, Some(&call(1)))
            .await
            .unwrap(),
        replayed
    );
    let listing = ErasureListing {
        only: None,
        after: None,
        limit: 10,
    };
    assert_eq!(index.erasures.list(tenant_id, &listing).await.unwrap().len(), 1);
}

pub(crate) async fn finished_erasure_holds_no_path(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/private/a", 1).await;
    let erasure_id = ask(&place, below(&place, "/private/")).await;
    let row = "SELECT CAST(selector AS TEXT), cursor, CAST(counts AS TEXT), state FROM erasure WHERE id = $1";
    let text = async || {
        let rows = place.raw.rows(row, &[erasure_id.uuid()]).await;
        rows[0].clone()
    };
    let before = text().await;
    assert!(before[0].as_deref().unwrap().contains("/private/"));
    loop {
        let row = text().await;
        for column in &row[1..] {
            assert!(
                !column.as_deref().unwrap_or_default().contains("private"),
                "{row:?}"
            );
        }
        if step(&place, erasure_id, 1).await {
            break;
        }
    }
    assert_eq!(
        text().await[0],
        None,
        "cleared as soon as nothing is left that it selects"
    );
    let erasure = end(&place, erasure_id).await;
    let after = text().await;
    assert_eq!(
        (after[0].as_deref(), after[1].as_deref(), after[3].as_deref()),
        (None, None, Some("done"))
    );
    assert_eq!(
        (erasure.kind.as_str(), erasure.ended_at),
        ("path_prefix", Some(after_seconds(90)))
    );
    let names: Vec<_> = erasure
        .receipt
        .steps
        .iter()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(names, ["rows", "idempotency_records", "blobs"]);
    assert!(erasure.receipt.steps.iter().all(|step| step.ended_at.is_some()));
    let audit = "SELECT action, actor FROM audit WHERE tenant_id = $1 AND object_id = $2 ORDER BY at";
    let lines = place
        .raw
        .rows(audit, &[place.tenant_id.uuid(), erasure_id.uuid()])
        .await;
    let line = |action: &str, actor: &str| vec![Some(action.to_owned()), Some(actor.to_owned())];
    assert_eq!(
        lines,
        [
            line("erasure.create", &Auditor::Credential(actor()).to_string()),
            line("erasure.finish", "job")
        ]
    );
}

pub(crate) async fn open_erasures_of_a_tenant_are_bounded(subject: &Subject) {
    let place = Place::new(subject).await;
    let create = async |place: &Place| {
        let erasure = new_erasure(below(place, "/p/"));
        let made = place.index.erasures.create(place.tenant_id, &erasure, None).await;
        (erasure.erasure_id, made.unwrap())
    };
    let many = join_all((0..MAX_OPEN_ERASURES + 12).map(|_| create(&place))).await;
    let made: Vec<_> = many
        .iter()
        .filter(|(_, made)| *made == ErasureCreation::Created)
        .collect();
    assert_eq!(made.len() as u64, MAX_OPEN_ERASURES);
    let other = Place::new(subject).await;
    assert_eq!(create(&other).await.1, ErasureCreation::Created);
    while !step(&place, made[0].0, LIMIT).await {}
    end(&place, made[0].0).await;
    assert_eq!(create(&place).await.1, ErasureCreation::Created);
    assert_eq!(create(&place).await.1, ErasureCreation::TooMany);
}

pub(crate) async fn erasures_are_listed_newest_first_and_by_store(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let mut asked = Vec::new();
    for place in [&place, &other, &place] {
        asked.push(ask(place, below(place, "/p/")).await);
    }
    let everything = ask(
        &place,
        Selector::StoreMetadata(Map::from_iter([("a".to_owned(), json!("b"))])),
    )
    .await;
    let list = async |only: Option<Vec<StoreId>>, after, limit| {
        let listing = ErasureListing { only, after, limit };
        let found = place
            .index
            .erasures
            .list(place.tenant_id, &listing)
            .await
            .unwrap();
        found
            .into_iter()
            .map(|erasure| erasure.erasure_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 2).await, [everything, asked[2]]);
    assert_eq!(list(None, Some(asked[2]), 10).await, [asked[1], asked[0]]);
    assert_eq!(
        list(Some(vec![place.store_id]), None, 10).await,
        [asked[2], asked[0]]
    );
    assert_eq!(list(Some(Vec::new()), None, 10).await, []);
}

pub(crate) async fn erasure_belongs_to_one_worker_until_it_stops(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/p/a", 1).await;
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    let open = async |seconds| {
        let open = place
            .index
            .erasures
            .open(after_seconds(seconds), 10)
            .await
            .unwrap();
        open.contains(&(place.tenant_id, erasure_id))
    };
    assert!(open(60).await);
    step(&place, erasure_id, 1).await;
    assert!(!open(61).await, "its worker told that it works");
    assert!(open(120).await);
    let index = &place.index;
    index
        .erasures
        .fail(
            place.tenant_id,
            erasure_id,
            "blobs_unavailable",
            after_seconds(300),
        )
        .await
        .unwrap();
    assert!(!open(299).await);
    assert!(open(300).await);
    let failed = found(&place, erasure_id).await;
    assert_eq!(
        (failed.failed_attempts, failed.error.as_deref()),
        (1, Some("blobs_unavailable"))
    );
    while !step(&place, erasure_id, 1).await {}
    assert_eq!(end(&place, erasure_id).await.error, None);
    assert!(!open(i64::from(i32::MAX)).await);
}

pub(crate) async fn erasure_of_another_tenant_is_not_found(subject: &Subject) {
    let place = Place::new(subject).await;
    let stranger = Place::new(subject).await;
    place.create("/p/a", 1).await;
    let index = &place.index;
    for selector in [Selector::Store(place.store_id), below(&place, "/p/")] {
        let asked = index
            .erasures
            .create(stranger.tenant_id, &new_erasure(selector), None)
            .await;
        assert_eq!(asked.unwrap(), ErasureCreation::NoStore);
    }
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    assert_eq!(
        index.erasures.find(stranger.tenant_id, erasure_id).await.unwrap(),
        None
    );
    assert!(step(&stranger, erasure_id, 10).await, "there is nothing to do");
    assert_eq!(place.paths_below("/").await, ["/p/a"]);
    let nobody = Place {
        tenant_id: TenantId::from_uuid(next_uuid()),
        ..place.clone()
    };
    let asked = index
        .erasures
        .create(nobody.tenant_id, &new_erasure(below(&place, "/p/")), None)
        .await;
    assert_eq!(asked.unwrap(), ErasureCreation::NoTenant);
}
