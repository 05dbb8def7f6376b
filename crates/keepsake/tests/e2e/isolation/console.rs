//! The console shows and changes nothing of others.
//!
//! The pages are those of the server's own list, so that none is left out; below are their
//! queries and forms. Each is requested with foreign ids in all combinations with own ones, and
//! must answer as for unknown ids.

use super::*;
use crate::console::browser::{Browser, Page};

/// Pages of the console, each with its queries or forms between `|`.
const REQUESTS: &[(&str, &str)] = &[
    ("GET /console/stores", "|archived=1|name=of"),
    ("POST /console/stores", "name=taken&fork_of={store}"),
    ("GET /console/stores/{store}/fork", "at_seq=7"),
    ("GET /console/stores/{store}", "|path={directory}|path={api_path}|at_seq=7|at_seq=7&path={api_path}"),
    ("GET /console/stores/{store}/branch", "path={directory}"),
    ("POST /console/stores/{store}/settings", "name=taken&description=taken"),
    ("GET /console/stores/{store}/archive", "|versions=true"),
    ("POST /console/stores/{store}/delete", "confirm=store of ayla"),
    ("GET /console/stores/{store}/new", "|path={api_path}"),
    ("POST /console/stores/{store}/new", "path=/new.md&content=new"),
    ("GET /console/stores/{store}/history", "|actor={api_key}|actor={session}"),
    ("GET /console/stores/{store}/diff", "from_seq=7|other_store_id={store}"),
    (
        "GET /console/stores/{store}/undo",
        "path_prefix={directory}|actor={api_key}&overwrite=1|actor={session}",
    ),
    ("POST /console/stores/{store}/undo", "actor={api_key}|path_prefix={directory}"),
    ("GET /console/stores/{store}/restore", "at_seq=7"),
    ("POST /console/stores/{store}/restore", "at_seq=7"),
    ("GET /console/stores/{store}/compare", "to={version}|from={version}&to={version}"),
    ("GET /console/stores/{store}/memories/{memory}", "|raw=1|at_seq=7"),
    ("POST /console/stores/{store}/memories/{memory}/edit", "content=taken&base_sha256={hash}"),
    ("POST /console/stores/{store}/memories/{memory}/rename", "path=/taken.md"),
    ("POST /console/stores/{store}/memories/{memory}/expiry", "action=pin"),
    ("POST /console/stores/{store}/memories/{memory}/delete", "sha256={hash}"),
    ("POST /console/stores/{store}/versions/{version}/redact", "confirm=redact"),
    ("GET /console/palette", "q=of|q=/|q=/&store={store}"),
    ("GET /console/search", "|q=second|q=second&store={store}"),
    ("GET /console/search", "q=second&prefix={directory}|q=second&author={api_key}"),
    ("GET /console/sessions", "|ended=1|store={store}"),
    ("GET /console/sessions/{session}", "|order=newest"),
    ("POST /console/keys", "name=taken&scope=memory:read&store={store}"),
    ("GET /console/audit", "|object={store}|object={session}|actor={api_key}"),
    ("GET /console/audit/export", "format=csv|format=jsonl&object={store}"),
    ("POST /console/erasures", "store={store}&confirm=store of ayla"),
    ("GET /console/erasures/preview", "store={store}|store={store}&prefix={directory}"),
    ("GET /console/transfer", "|store={store}"),
    ("POST /console/transfer", "store={store}&on_conflict=replace"),
];

/// These requests, and the pages that they leave out.
fn requests() -> Vec<String> {
    let pages = keepsake_server::console_pages().into_iter();
    let mut pages: Vec<_> = pages.map(|(method, path)| format!("{method} {}", meant(&path))).collect();
    let mut requests = Vec::new();
    for (page, queries) in REQUESTS {
        assert!(pages.iter().any(|known| known == page), "there is no page {page}");
        let of_page = queries.split('|').map(|query| format!("{page}?{query}"));
        requests.extend(of_page.map(|request| request.trim_end_matches('?').to_owned()));
    }
    pages.retain(|page| !REQUESTS.iter().any(|(known, _)| known == page));
    [pages, requests].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn console_shows_nothing_of_others() {
    let Parties { deployment: _deployment, server, owner, stranger, bound } =
        Parties::of(Deployment::new(Pair::Sqlite).await).await;
    let owning = server.client(&owner);
    let mut theirs = Ids::of_new(&owning, "ayla").await;
    let undo = undo_in(&owning, "ayla", theirs.get("store")).await;
    theirs.set("undo", &undo);
    let (strange, binding) = (server.client(&stranger), owning.with_key(&bound));
    let strangers = Ids::of_new(&strange, "cleo").await;
    let bounds = Ids::in_store(&binding, "bela", &owner.store_id.to_string()).await;
    let before = snapshot(&owning).await;
    // The requests are good ones: the owner's pages are there. The stream does not end.
    let mut person = Browser::signed_in(&server.url(), &owner.key).await;
    let is_tried = |request: &String| request.starts_with("GET") && !request.ends_with("/events");
    for request in requests().into_iter().filter(is_tried) {
        let answer = send(&mut person, &request, &theirs, "").await;
        // The path of a memory leads to its page.
        let leads = request == "GET /console" || request.ends_with("path={api_path}");
        let is_good = answer.status == 200 || leads && answer.status == 303;
        assert!(is_good, "{request}: {} {}", answer.status, answer.text);
    }
    attack(&server.url(), &stranger.key, &strange, &strangers, &theirs, &before).await;
    attack(&server.url(), &bound, &binding, &bounds, &theirs, &before).await;
    assert_eq!(unread(snapshot(&owning).await), unread(before));
}

async fn attack(url: &str, key: &str, client: &Client, own: &Ids, theirs: &Ids, listed: &[Value]) {
    let before = snapshot(client).await;
    let secrets = Secrets::of_others(listed, &before);
    let mut browser = Browser::signed_in(url, key).await;
    let token = browser.open("/console/stores").await.field("token");
    for request in &requests() {
        let (is_read, kinds) = (request.starts_with("GET"), kinds_in(request));
        let mut choices = combinations(&kinds);
        if is_read && kinds.is_empty() {
            choices.push(Vec::new());
        }
        for foreign in choices {
            let what = format!("{request} with {foreign:?} of others");
            let answer = send(&mut browser, request, &own.with(&foreign, theirs), &token).await;
            let unknown = own.with(&foreign, &Ids::of_nobody());
            let never = send(&mut browser, request, &unknown, &token).await;
            assert_eq!(answer.status, never.status, "{what}: {}", answer.text);
            // The form of a memory that is not there keeps the text that was typed.
            let page = request.split('?').next().unwrap_or_default();
            let is_kept = !is_read && page.ends_with("/{memory}/edit") && answer.status == 409;
            if kinds_in(page).iter().any(|kind| foreign.contains(kind)) && !is_kept {
                assert_eq!(answer.status, 404, "{what}: {}", answer.text);
            }
            assert!(is_read || answer.status >= 400, "{what}: {}", answer.status);
            // A page may repeat what it was sent.
            let is_sent = |secret: &str| foreign.iter().any(|kind| theirs.get(kind).contains(secret));
            for told in [answer.text.as_str(), answer.location()] {
                assert_eq!(secrets.find(told, is_sent), None, "{what}: it is in {told}");
            }
        }
    }
    assert_eq!(unread(snapshot(client).await), unread(before), "own objects changed");
}

async fn send(browser: &mut Browser, request: &str, ids: &Ids, token: &str) -> Page {
    let request = ids.fill(request);
    let (method, path) = request.split_once(' ').unwrap();
    if method == "GET" {
        return browser.get(path).await;
    }
    let (path, form) = path.split_once('?').unwrap_or((path, ""));
    let mut fields: Vec<_> = form.split('&').filter_map(|field| field.split_once('=')).collect();
    fields.push(("token", token));
    browser.post(path, &fields).await
}
