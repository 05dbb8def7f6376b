//! The console shows and changes nothing of others.
//!
//! The pages are those of the server's own list, so that none is left out. Each is
//! requested with foreign ids in its path, query and form, in all combinations with
//! own ones, and must answer as for unknown ids.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use super::Parties;
use super::cases::{self, Meaning};
use super::fixture::{Fixture, Ids, Kind, snapshot, unread};
use super::sweep::{Secrets, combinations};
use crate::console::browser::{Browser, Page};
use crate::support::{Client, Pair};

/// The fields of a query or a form.
type Sent = &'static [(&'static str, Meaning)];

const NOTHING: Sent = &[];
const STORE: Meaning = Meaning::Of(Kind::Store);
const VERSION: Meaning = Meaning::Of(Kind::Version);

/// What is sent to each page: a query, or a form.
const SENT: &[(&str, &[Sent])] = &[
    ("GET /console", &[NOTHING]),
    ("POST /console/sign-out", &[NOTHING]),
    (
        "GET /console/stores",
        &[NOTHING, &[("archived", Meaning::Plain("1"))], &[("name", Meaning::Plain("of"))]],
    ),
    ("POST /console/stores", &[NOTHING]),
    (
        "GET /console/stores/{memory_store_id}",
        &[NOTHING, &[("path", Meaning::Of(Kind::Directory))], &[("path", Meaning::Of(Kind::ApiPath))]],
    ),
    ("GET /console/stores/{memory_store_id}/settings", &[NOTHING]),
    (
        "POST /console/stores/{memory_store_id}/settings",
        &[&[("name", Meaning::Plain("taken")), ("description", Meaning::Plain("taken"))]],
    ),
    ("GET /console/stores/{memory_store_id}/archive", &[NOTHING, &[("versions", Meaning::Plain("1"))]]),
    ("POST /console/stores/{memory_store_id}/archive", &[NOTHING]),
    ("POST /console/stores/{memory_store_id}/delete", &[&[("confirm", Meaning::Plain("store of ayla"))]]),
    ("GET /console/stores/{memory_store_id}/new", &[NOTHING, &[("path", Meaning::Of(Kind::ApiPath))]]),
    (
        "POST /console/stores/{memory_store_id}/new",
        &[&[("path", Meaning::Plain("/new.md")), ("content", Meaning::Plain("new"))]],
    ),
    (
        "GET /console/stores/{memory_store_id}/history",
        &[NOTHING, &[("actor", Meaning::Of(Kind::ApiKey))], &[("actor", Meaning::Of(Kind::Session))]],
    ),
    (
        "GET /console/stores/{memory_store_id}/compare",
        &[&[("to", VERSION)], &[("from", VERSION), ("to", VERSION)]],
    ),
    ("GET /console/stores/{memory_store_id}/usage", &[NOTHING]),
    (
        "GET /console/stores/{memory_store_id}/memories/{memory_id}",
        &[NOTHING, &[("raw", Meaning::Plain("1"))]],
    ),
    ("GET /console/stores/{memory_store_id}/memories/{memory_id}/file", &[NOTHING]),
    ("GET /console/stores/{memory_store_id}/memories/{memory_id}/edit", &[NOTHING]),
    (
        "POST /console/stores/{memory_store_id}/memories/{memory_id}/edit",
        &[&[("content", Meaning::Plain("taken")), ("base_sha256", Meaning::Of(Kind::Hash))]],
    ),
    (
        "POST /console/stores/{memory_store_id}/memories/{memory_id}/rename",
        &[&[("path", Meaning::Plain("/taken.md"))]],
    ),
    (
        "POST /console/stores/{memory_store_id}/memories/{memory_id}/expiry",
        &[&[("action", Meaning::Plain("pin"))]],
    ),
    ("GET /console/stores/{memory_store_id}/memories/{memory_id}/delete", &[NOTHING]),
    (
        "POST /console/stores/{memory_store_id}/memories/{memory_id}/delete",
        &[&[("sha256", Meaning::Of(Kind::Hash))]],
    ),
    ("GET /console/stores/{memory_store_id}/memories/{memory_id}/history", &[NOTHING]),
    ("GET /console/stores/{memory_store_id}/versions/{memory_version_id}", &[NOTHING]),
    ("POST /console/stores/{memory_store_id}/versions/{memory_version_id}/restore", &[NOTHING]),
    ("GET /console/stores/{memory_store_id}/versions/{memory_version_id}/redact", &[NOTHING]),
    (
        "POST /console/stores/{memory_store_id}/versions/{memory_version_id}/redact",
        &[&[("confirm", Meaning::Plain("redact"))]],
    ),
    (
        "GET /console/search",
        &[
            NOTHING,
            &[("q", Meaning::Plain("second"))],
            &[("q", Meaning::Plain("second")), ("store", STORE)],
            &[("q", Meaning::Plain("second")), ("prefix", Meaning::Of(Kind::Directory))],
            &[("q", Meaning::Plain("second")), ("author", Meaning::Of(Kind::ApiKey))],
        ],
    ),
    ("GET /console/sessions", &[NOTHING, &[("ended", Meaning::Plain("1"))], &[("store", STORE)]]),
    ("GET /console/sessions/{session_id}", &[NOTHING, &[("order", Meaning::Plain("newest"))]]),
    ("POST /console/sessions/{session_id}/end", &[NOTHING]),
    ("GET /console/sessions/{session_id}/events", &[NOTHING]),
    ("GET /console/usage", &[NOTHING]),
    ("GET /console/keys", &[NOTHING]),
    (
        "POST /console/keys",
        &[&[("name", Meaning::Plain("taken")), ("scope", Meaning::Plain("memory:read")), ("store", STORE)]],
    ),
    ("GET /console/keys/{api_key_id}", &[NOTHING]),
    ("POST /console/keys/{api_key_id}/revoke", &[NOTHING]),
    (
        "GET /console/audit",
        &[
            NOTHING,
            &[("object", STORE)],
            &[("object", Meaning::Of(Kind::Session))],
            &[("actor", Meaning::Of(Kind::ApiKey))],
        ],
    ),
    (
        "GET /console/audit/export",
        &[&[("format", Meaning::Plain("csv"))], &[("format", Meaning::Plain("jsonl")), ("object", STORE)]],
    ),
    ("GET /console/erasures", &[NOTHING]),
    ("POST /console/erasures", &[&[("store", STORE), ("confirm", Meaning::Plain("store of ayla"))]]),
    (
        "GET /console/erasures/preview",
        &[&[("store", STORE)], &[("store", STORE), ("prefix", Meaning::Of(Kind::Directory))]],
    ),
    ("GET /console/erasures/{erasure_id}", &[NOTHING]),
    ("GET /console/transfer", &[NOTHING, &[("store", STORE)]]),
    ("POST /console/transfer", &[&[("store", STORE), ("on_conflict", Meaning::Plain("replace"))]]),
];

#[test]
fn every_page_of_the_console_has_a_case() {
    let pages = keepsake_server::console_pages().into_iter();
    let pages: BTreeSet<_> = pages.map(|(method, path)| format!("{method} {path}")).collect();
    let cases: BTreeSet<_> = SENT.iter().map(|(page, _)| (*page).to_owned()).collect();
    assert_eq!(cases, pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_shows_nothing_of_others() {
    let Parties { deployment: _deployment, server, owner, stranger, bound } = Parties::on(Pair::Sqlite).await;
    let owning = server.client(&owner);
    let theirs = Fixture::new(&owning, "ayla").await.ids;
    let strange = server.client(&stranger);
    let strangers = Fixture::new(&strange, "cleo").await.ids;
    let binding = owning.with_key(&bound);
    let bounds = Fixture::in_store(&binding, "bela", &owner.store_id.to_string()).await.ids;
    let before = snapshot(&owning).await;

    // The requests are good ones: the owner's pages are there.
    let mut person = Browser::signed_in(&server.url(), &owner.key).await;
    for (page, forms) in SENT.iter().filter(|(page, _)| page.starts_with("GET")) {
        // The stream does not end.
        if !page.ends_with("/events") {
            for sent in *forms {
                let answer = request(&mut person, page, sent, &theirs, "").await;
                // The path of a memory leads to its page.
                let leads = *page == "GET /console" || sent.contains(&("path", Meaning::Of(Kind::ApiPath)));
                let is_good = answer.status == 200 || leads && answer.status == 303;
                assert!(is_good, "{page} {sent:?}: {} {}", answer.status, answer.text);
            }
        }
    }
    attack(&server.url(), &stranger.key, &strange, &strangers, &theirs, &before).await;
    attack(&server.url(), &bound, &binding, &bounds, &theirs, &before).await;
    assert_eq!(unread(snapshot(&owning).await), unread(before));
}

/// Opens every page and sends every form with foreign ids.
async fn attack(url: &str, key: &str, client: &Client, own: &Ids, theirs: &Ids, listed: &[Value]) {
    let before = snapshot(client).await;
    let secrets = Secrets::of_others(listed, &before);
    let mut browser = Browser::signed_in(url, key).await;
    let token = browser.open("/console/stores").await.field("token");
    for (page, forms) in SENT {
        let is_read = page.starts_with("GET");
        for sent in *forms {
            let in_path = kinds_in_path(page);
            let kinds = in_path.iter().copied().chain(kinds_in(sent));
            let kinds: Vec<_> = kinds.collect::<BTreeSet<_>>().into_iter().collect();
            let mut choices = combinations(&kinds);
            if is_read && kinds.is_empty() {
                choices.push(Vec::new());
            }
            for foreign in choices {
                let what = format!("{page} {sent:?} with {foreign:?} of others");
                let ids = own.with(&foreign, theirs);
                let answer = request(&mut browser, page, sent, &ids, &token).await;
                let unknown = own.with(&foreign, &Ids::of_nobody());
                let never = request(&mut browser, page, sent, &unknown, &token).await;
                assert_eq!(answer.status, never.status, "{what}: {}", answer.text);
                // The form of a memory that is not there keeps the text that was typed.
                let is_kept = page.starts_with("POST") && page.ends_with("/{memory_id}/edit");
                if in_path.iter().any(|kind| foreign.contains(kind)) && !(is_kept && answer.status == 409) {
                    assert_eq!(answer.status, 404, "{what}: {}", answer.text);
                }
                assert!(is_read || answer.status >= 400, "{what}: {}", answer.status);
                // A page may repeat what it was sent.
                let is_sent = |secret: &str| foreign.iter().any(|kind| theirs.get(*kind).contains(secret));
                for told in [answer.text.as_str(), answer.location()] {
                    assert_eq!(secrets.find(told, is_sent), None, "{what}: it is in {told}");
                }
            }
        }
    }
    let after = snapshot(client).await;
    assert_eq!(unread(after), unread(before), "own objects changed");
}

/// Requests a page with these ids.
async fn request(browser: &mut Browser, page: &str, sent: Sent, ids: &Ids, token: &str) -> Page {
    let value = |meaning: &Meaning| match meaning {
        Meaning::Of(kind) => ids.get(*kind).to_owned(),
        Meaning::Plain(value) => (*value).to_owned(),
    };
    let (method, path) = page.split_once(' ').unwrap();
    let filled = path.split('/').map(|segment| match parameter(segment) {
        Some(name) => value(&cases::meaning(name)),
        None => segment.to_owned(),
    });
    let path = filled.collect::<Vec<_>>().join("/");
    let fields: Vec<_> = sent.iter().map(|(name, meaning)| (*name, value(meaning))).collect();
    let mut fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if method == "POST" {
        fields.push(("token", token));
        return browser.post(&path, &fields).await;
    }
    let request = browser.request(Method::GET, &path).query(&fields);
    browser.send(request).await
}

/// The name in a segment of a route.
fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn kinds_in_path(page: &str) -> Vec<Kind> {
    let names = page.split('/').filter_map(parameter);
    names.filter_map(|name| kind_of(&cases::meaning(name))).collect()
}

fn kinds_in(sent: Sent) -> impl Iterator<Item = Kind> {
    sent.iter().filter_map(|(_, meaning)| kind_of(meaning))
}

const fn kind_of(meaning: &Meaning) -> Option<Kind> {
    match meaning {
        Meaning::Of(kind) => Some(*kind),
        Meaning::Plain(_) => None,
    }
}
