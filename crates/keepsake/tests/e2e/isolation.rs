//! No route reveals anything about another tenant's objects.
//!
//! The operations are those of the server's own document, so that none is left out; `cases` has
//! their bodies and parameters, and explains how to add one. For every parameter that is an id,
//! the test tries foreign, own and unknown ids in all combinations. A foreign id must get the
//! same answer as an unknown one, byte for byte except for the request id.

mod caches;
mod cases;
mod console;
mod document;
mod fixture;
mod partitions;
mod session_token;
mod sweep;

use cases::meant;
use document::{Operation, operations};
use fixture::*;
use sweep::{Attacker, Secrets, combinations};

use crate::prelude::*;

on_pairs! { others_objects_are_as_if_they_never_existed }

/// Carries out every operation that needs a credential, on objects whose texts have this label.
pub(crate) async fn carry_out_every_operation(owner: &Client, label: &str) {
    let document = owner.get("/openapi.json").await.json();
    let operations: Vec<_> =
        document::operations(&document).into_iter().filter(|operation| operation.needs_credential).collect();
    let targets = sweep::targets(owner, label, &operations).await;
    sweep::call_as_owner(owner, &targets).await;
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
    async fn of(deployment: Deployment) -> Self {
        let provision = deployment.provision().await;
        let owner = provision.tenant().await;
        let stranger = provision.tenant().await;
        let bound = provision.key(owner.id, &Scope::ALL, Some(vec![owner.store_id])).await;
        provision.close().await;
        Self { server: deployment.start().await, deployment, owner, stranger, bound }
    }
}

async fn others_objects_are_as_if_they_never_existed(pair: Pair) {
    let Parties { deployment, server, owner, stranger, bound } =
        Parties::of(Deployment::new(pair).await).await;
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
    let targets = sweep::targets(&owning, "ayla", &guarded).await;
    sweep::warm(&owning, &targets).await;
    let before = snapshot(&owning).await;
    let blobs = deployment.blob_keys(owner.id).await;
    for attacker in &attackers {
        attacker.attack(&targets, &before).await;
    }
    // Nor does the owner's workspace in the header help.
    let claim = async |workspace: &str| {
        let request = attackers[0].client.request(Method::GET, STORES);
        send(request.header("anthropic-workspace-id", workspace)).await
    };
    let claimed = claim(&owner.id.to_string()).await;
    assert_eq!(claimed.status, 403, "{}", claimed.text);
    assert_eq!(claimed.lasting(), claim(&format!("wrkspc_{NEVER}")).await.lasting());
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
