//! No route reveals anything about another tenant's objects.
//!
//! The operations are those of the server's own document, so that none is left
//! out; `cases` has the requests of each, and explains how to add one. For every
//! parameter that is an id, the test tries foreign, own and unknown ids in all
//! combinations. A foreign id must get the same answer as an unknown one, byte for
//! byte except for the request id. The duration of answers is not compared.

mod caches;
mod cases;
mod console;
mod document;
mod fixture;
mod partitions;
mod session_token;
mod sweep;

use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use serde_json::Value;

use crate::support::command::keepsake;
use crate::support::{Client, Deployment, Pair, Server, Tenant};
use document::Operation;
use fixture::{Fixture, Kind, snapshot, unread};
use sweep::{Attacker, Target};

#[tokio::test]
async fn every_operation_has_a_case_and_every_case_an_operation() {
    let document: Value = serde_json::from_str(&keepsake(&["openapi"]).await.ok()).unwrap();
    document::assert_complete(&document);
}

#[tokio::test(flavor = "multi_thread")]
async fn others_objects_are_as_if_they_never_existed_on_postgres_and_s3() {
    run(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_objects_are_as_if_they_never_existed_on_sqlite() {
    run(Pair::Sqlite).await;
}

/// A server with two tenants, and a key of the owner that is bound to one store.
struct Parties {
    deployment: Deployment,
    server: Server,
    owner: Tenant,
    stranger: Tenant,
    bound: String,
}

impl Parties {
    async fn on(pair: Pair) -> Self {
        Self::of(Deployment::new(pair).await).await
    }

    async fn of(deployment: Deployment) -> Self {
        let provision = deployment.provision().await;
        let owner = provision.tenant(LimitOverrides::default()).await;
        let stranger = provision.tenant(LimitOverrides::default()).await;
        let bound = provision.key(owner.id, &Scope::ALL, Some(vec![owner.store_id])).await;
        provision.close().await;
        Self { server: deployment.start().await, deployment, owner, stranger, bound }
    }
}

async fn run(pair: Pair) {
    let Parties { deployment, server, owner, stranger, bound } = Parties::on(pair).await;
    let owning = server.client(&owner);
    let document = owning.get("/openapi.json").await.json();
    document::assert_complete(&document);
    let (guarded, open): (Vec<_>, Vec<_>) =
        document::operations(&document).into_iter().partition(|operation| operation.needs_credential);

    let attackers = [
        Attacker::stranger(server.client(&stranger)).await,
        Attacker::bound(owning.with_key(&bound), owner.store_id).await,
        Attacker::nobody(owning.with_key("")),
    ];
    let targets = targets(&owning, &guarded).await;
    sweep::warm(&owning, &targets).await;
    let before = snapshot(&owning).await;
    let blobs = deployment.blob_keys(owner.id).await;
    for attacker in &attackers {
        attacker.attack(&targets, &before).await;
    }
    attackers[0].claim_workspace(&targets, owner.id).await;
    // The key that is bound to a store has read its own.
    assert_eq!(unread(snapshot(&owning).await), unread(before));
    assert_eq!(deployment.blob_keys(owner.id).await, blobs);

    // The refused requests were valid: the owner can send them. Others then try the
    // owner's idempotency keys.
    sweep::call_as_owner(&owning, &targets).await;
    let before = snapshot(&owning).await;
    for attacker in &attackers {
        attacker.attack(&targets, &before).await;
    }
    sweep::call_own(&attackers[0], &guarded, &before).await;
    assert_eq!(unread(snapshot(&owning).await), unread(before));
    sweep::call_again_as_owner(&owning, &targets).await;

    sweep::assert_open(&open, &owning, &attackers[0].client).await;
    caches::are_of_one_tenant(&owning, &attackers[0].client).await;
}

/// Something of the owner's for each operation to be tried on.
async fn targets(owner: &Client, operations: &[Operation]) -> Vec<Target> {
    let mut targets = Vec::new();
    for operation in operations {
        let fixture = Fixture::new(owner, "ayla").await;
        targets.push(Target { operation: operation.clone(), ids: fixture.ids });
    }
    // A list has a second page once all are there.
    for target in &mut targets {
        if target.operation.is_paged() {
            let page = sweep::next_page(owner, target).await;
            target.ids.set(Kind::Page, page);
        }
    }
    targets
}
