//! The cookies of sign-ins: who can read them, and for how long.

use std::time::Duration;

use keepsake_engine::{Audience, EngineError, SIGN_IN_LIFE};

use crate::test_engine::TestEngine;

crate::on_both_databases! {
    cookie_is_valid_on_every_replica_until_it_expires,
    altered_cookie_is_invalid,
    cookie_is_valid_for_one_console,
    credential_that_is_too_long_is_refused,
}

const CREDENTIAL: &str = "ks_live_not_a_real_one";

async fn cookie_is_valid_on_every_replica_until_it_expires(setup: TestEngine) {
    let sign_ins = &setup.engine.sign_ins;
    let (signed_in, cookie) = sign_ins.begin(Audience::Tenant, CREDENTIAL).await.unwrap();
    assert!(!cookie.contains(CREDENTIAL) && cookie.is_ascii());
    let other = setup.replica();
    let opened = other
        .sign_ins
        .open(Audience::Tenant, &cookie)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(opened, signed_in);
    assert_eq!(opened.credential, CREDENTIAL);
    let token = sign_ins.form_token(&signed_in).await.unwrap();
    assert_eq!(other.sign_ins.form_token(&opened).await.unwrap(), token);
    assert!(!format!("{opened:?}").contains(CREDENTIAL));

    let (again, _) = sign_ins.begin(Audience::Tenant, CREDENTIAL).await.unwrap();
    assert_ne!(sign_ins.form_token(&again).await.unwrap(), token);

    setup
        .clock
        .advance(SIGN_IN_LIFE.checked_sub(Duration::from_secs(1)).unwrap());
    assert!(sign_ins.open(Audience::Tenant, &cookie).await.unwrap().is_some());
    setup.clock.advance(Duration::from_secs(1));
    assert_eq!(sign_ins.open(Audience::Tenant, &cookie).await.unwrap(), None);
}

async fn altered_cookie_is_invalid(setup: TestEngine) {
    let sign_ins = &setup.engine.sign_ins;
    let (_, cookie) = sign_ins.begin(Audience::Tenant, CREDENTIAL).await.unwrap();
    for position in 0..cookie.len() {
        let mut changed = cookie.clone().into_bytes();
        changed[position] = if changed[position] == b'A' { b'Q' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(
            sign_ins.open(Audience::Tenant, &changed).await.unwrap(),
            None,
            "{position}"
        );
    }
    for other in [
        "",
        "x",
        &cookie[1..],
        &cookie[..cookie.len() - 4],
        &format!("{cookie}AAAA"),
        &"A".repeat(5_000),
    ] {
        assert_eq!(
            sign_ins.open(Audience::Tenant, other).await.unwrap(),
            None,
            "{other}"
        );
    }
}

async fn cookie_is_valid_for_one_console(setup: TestEngine) {
    let sign_ins = &setup.engine.sign_ins;
    let all = [
        Audience::Tenant,
        Audience::Operator,
        Audience::SignInForm,
        Audience::AtIssuer,
    ];
    for made_for in all {
        let (_, cookie) = sign_ins.begin(made_for, CREDENTIAL).await.unwrap();
        for audience in all {
            let opened = sign_ins.open(audience, &cookie).await.unwrap();
            assert_eq!(
                opened.is_some(),
                audience == made_for,
                "{made_for:?} {audience:?}"
            );
        }
    }
}

async fn credential_that_is_too_long_is_refused(setup: TestEngine) {
    let long = "x".repeat(4_000);
    let refused = setup
        .engine
        .sign_ins
        .begin(Audience::Tenant, &long)
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            EngineError::Invalid {
                field: "credential",
                ..
            }
        ),
        "{refused}"
    );
}
