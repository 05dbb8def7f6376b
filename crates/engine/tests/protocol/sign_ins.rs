//! The cookies of sign-ins: for how long they are valid.

use std::time::Duration;

use keepsake_engine::{Audience, SIGN_IN_LIFE};

use crate::test_engine::TestEngine;

crate::on_backend! {
    sqlite,
    on_sqlite,
    cookie_is_valid_on_every_replica_until_it_expires,
}

const CREDENTIAL: &str = "ks_live_not_a_real_one";

async fn cookie_is_valid_on_every_replica_until_it_expires(setup: TestEngine) {
    let sign_ins = &setup.engine.sign_ins;
    let (signed_in, cookie) = sign_ins.begin(Audience::Tenant, CREDENTIAL).await.unwrap();
    assert!(!cookie.contains(CREDENTIAL) && cookie.is_ascii());
    let other = setup.replica();
    let opened = other.sign_ins.open(Audience::Tenant, &cookie).await.unwrap().unwrap();
    assert_eq!(opened, signed_in);
    assert_eq!(opened.credential, CREDENTIAL);
    let token = sign_ins.form_token(&signed_in).await.unwrap();
    assert_eq!(other.sign_ins.form_token(&opened).await.unwrap(), token);
    assert!(!format!("{opened:?}").contains(CREDENTIAL));

    let (again, _) = sign_ins.begin(Audience::Tenant, CREDENTIAL).await.unwrap();
    assert_ne!(sign_ins.form_token(&again).await.unwrap(), token);

    setup.clock.advance(SIGN_IN_LIFE.checked_sub(Duration::from_secs(1)).unwrap());
    assert!(sign_ins.open(Audience::Tenant, &cookie).await.unwrap().is_some());
    setup.clock.advance(Duration::from_secs(1));
    assert_eq!(sign_ins.open(Audience::Tenant, &cookie).await.unwrap(), None);
}
