//! Archives that people save and send.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use super::browser::{Browser, Page, console_on, write};
use crate::support::client::send;
use crate::support::command::{borrowed, keepsake_with};
use crate::support::{Client, Deployment, Pair, Server, Tenant};

/// The most bytes that a form may have.
const MAX_UPLOAD_BYTES: usize = 16 << 20;

type Files = BTreeMap<String, Vec<u8>>;

/// The files of a packed archive, in their order, with the moment of the export removed.
fn unpacked(archive: &[u8]) -> (Vec<String>, Files) {
    let plain = zstd::decode_all(archive).unwrap();
    let (mut names, mut files) = (Vec::new(), Files::new());
    for entry in tar::Archive::new(&plain[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if name == "keepsake.json" {
            let mut manifest: Value = serde_json::from_slice(&content).unwrap();
            assert!(manifest["exported_at"].is_string());
            manifest["exported_at"] = "".into();
            content = manifest.to_string().into_bytes();
        }
        names.push(format!("{name} {}", entry.header().mtime().unwrap()));
        files.insert(name, content);
    }
    (names, files)
}

fn packed<'a>(files: impl IntoIterator<Item = (&'a String, &'a Vec<u8>)>) -> Vec<u8> {
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 0).unwrap());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &content[..]).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

async fn saved(browser: &Browser, store_id: &str, query: &str) -> Vec<u8> {
    let path = format!("/console/stores/{store_id}/archive{query}");
    let answer = browser.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let headers = answer.headers().clone();
    assert_eq!(headers["cache-control"], "private, no-store");
    let disposition = headers["content-disposition"].to_str().unwrap();
    assert!(disposition.starts_with("attachment;"), "{disposition}");
    assert!(disposition.ends_with(".tar.zst"), "{disposition}");
    answer.bytes().await.unwrap().to_vec()
}

/// Sends a form with a file.
async fn send_form(browser: &mut Browser, fields: &[(&str, &str)], file: &[u8]) -> Page {
    let request = browser.form_with_file(fields, file);
    browser.send(request).await
}

/// Sends an archive from the page, into a store.
async fn import(browser: &mut Browser, store_id: &str, on_conflict: &str, file: &[u8]) -> Page {
    let token = browser.open("/console/transfer").await.field("token");
    let fields = [("token", token.as_str()), ("store", store_id), ("on_conflict", on_conflict)];
    send_form(browser, &fields, file).await
}

/// That a report counts the created, replaced, unchanged, skipped and refused memories.
#[track_caller]
fn has_counts(report: &Page, expected: [usize; 5]) {
    let names = ["created", "replaced", "unchanged", "skipped", "refused"];
    for (name, count) in names.into_iter().zip(expected) {
        report.has(&format!("id=\"{name}\">{count}</td>"));
    }
}

/// The contents of a store by path, and whether each memory is pinned.
async fn memories(client: &Client, store_id: &str) -> BTreeMap<String, (String, bool)> {
    let list = format!("/v1/memory_stores/{store_id}/memories?view=full");
    let listed = client.get(&list).await.json();
    let listed = listed["data"].as_array().unwrap().iter();
    let each = listed.map(|memory| {
        let text = |field: &str| memory[field].as_str().unwrap().to_owned();
        (text("path"), (text("content"), memory["pinned"] == true))
    });
    each.collect()
}

async fn exported(server: &Server, tenant: &Tenant, more: &[&str]) -> Vec<u8> {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("archive.tar.zst").to_string_lossy().into_owned();
    let variables = [
        ("KEEPSAKE_URL", server.url()),
        ("KEEPSAKE_API_KEY", tenant.key.clone()),
        ("KEEPSAKE_STORE", tenant.store_id.to_string()),
        ("XDG_CONFIG_HOME", home.path().to_string_lossy().into_owned()),
    ];
    let mut arguments = vec!["export", &target];
    arguments.extend_from_slice(more);
    keepsake_with(&arguments, &borrowed(&variables)).await.ok();
    std::fs::read(&target).unwrap()
}

/// A store with a history, paths that differ in case, and a pin.
async fn fill(client: &Client, store_id: &str) {
    write(client, store_id, "/notes/a.md", "one").await;
    write(client, store_id, "/Notes/a.md", "two").await;
    write(client, store_id, "/deleted.md", "gone").await;
    let changed = write(client, store_id, "/ñ 日.md", "before").await;
    let changed = changed["id"].as_str().unwrap();
    let memories = format!("/v1/memory_stores/{store_id}/memories");
    let edit = json!({"content": "after", "pinned": true});
    let edited = client.post(&format!("{memories}/{changed}"), &edit).await;
    assert_eq!(edited.status, 200, "{}", edited.text);
    let listed = client.get(&format!("{memories}?path=%2Fdeleted.md")).await.json();
    let id = listed["data"][0]["id"].as_str().unwrap();
    let deletion = client.request(Method::DELETE, &format!("{memories}/{id}"));
    assert_eq!(send(deletion).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_archive_equals_that_of_the_command() {
    let (_deployment, tenant, server, browser) = console_on(Pair::Sqlite).await;
    let (client, store_id) = (server.client(&tenant), tenant.store_id.to_string());
    fill(&client, &store_id).await;
    for (query, more) in [("", &[][..]), ("?versions=1", &["--versions"])] {
        let of_console = unpacked(&saved(&browser, &store_id, query).await);
        let of_command = unpacked(&exported(&server, &tenant, more).await);
        assert_eq!(of_console, of_command, "{query}");
        assert_eq!(of_console.1["memories/ñ 日.md"], b"after");
        assert_eq!(of_console.1.contains_key("versions.jsonl"), !more.is_empty());
    }
}

/// A memory that moves from the part of the listing that is still to come to the part that
/// was read is on no page.
#[tokio::test(flavor = "multi_thread")]
async fn export_has_the_memories_that_are_renamed_meanwhile() {
    const MEMORIES: usize = 300;
    let (_deployment, tenant, server, browser) = console_on(Pair::Sqlite).await;
    let (client, store_id) = (server.client(&tenant), tenant.store_id.to_string());
    let mut ids = Vec::new();
    for number in 0..MEMORIES {
        let made = write(&client, &store_id, &format!("/z/{number:03}.md"), "kept").await;
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let is_saved = AtomicBool::new(false);
    let rename_all = async {
        // From the end to the beginning and back.
        for (round, directory) in ["a", "z"].into_iter().cycle().enumerate() {
            for id in ids.iter().rev() {
                if is_saved.load(Ordering::Relaxed) {
                    return;
                }
                let edit = json!({"path": format!("/{directory}/{round}/{id}.md")});
                let memory = format!("/v1/memory_stores/{store_id}/memories/{id}");
                assert_eq!(client.post(&memory, &edit).await.status, 200);
            }
        }
    };
    let save = async {
        let archive = saved(&browser, &store_id, "").await;
        is_saved.store(true, Ordering::Relaxed);
        archive
    };
    let (archive, ()) = tokio::join!(save, rename_all);
    let (_, files) = unpacked(&archive);
    let index = String::from_utf8(files["index.jsonl"].clone()).unwrap();
    let missing = ids.iter().filter(|id| !index.contains(*id)).count();
    assert_eq!((missing, index.lines().count()), (0, MEMORIES));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_upload_imports_an_archive_once() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let (client, store_id) = (server.client(&tenant), tenant.store_id.to_string());
    fill(&client, &store_id).await;
    let archive = saved(&browser, &store_id, "?versions=1").await;
    let page = browser.open("/console/transfer").await;
    let (token, once) = (page.field("token"), page.field("once"));
    let form = [
        ("token", token.as_str()),
        ("once", once.as_str()),
        ("store", ""),
        ("name", "Copy"),
        ("on_conflict", "fail"),
    ];
    let report = send_form(&mut browser, &form, &archive).await;
    assert_eq!(report.status, 200, "{}", report.text);
    has_counts(&report, [3, 0, 0, 0, 0]);
    report.has("versions. The console imports what each memory contains now");
    let again = send_form(&mut browser, &form, &archive).await;
    has_counts(&again, [0, 0, 3, 0, 0]);
    let stores = client.get("/v1/memory_stores").await.json();
    let stores = stores["data"].as_array().unwrap().iter();
    let copies: Vec<_> = stores.filter(|store| store["name"] == "Copy").collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    let copy = copies[0]["id"].as_str().unwrap();
    let original = memories(&client, &store_id).await;
    assert_eq!(memories(&client, copy).await, original);
    assert_eq!(original["/ñ 日.md"], ("after".to_owned(), true));

    // Other content at a path.
    let list = format!("/v1/memory_stores/{copy}/memories");
    let listed = client.get(&format!("{list}?path=%2Fnotes%2Fa.md")).await.json();
    let id = listed["data"][0]["id"].as_str().unwrap();
    let edit = json!({"content": "mine"});
    let edited = client.post(&format!("{list}/{id}"), &edit).await;
    assert_eq!(edited.status, 200, "{}", edited.text);
    let refused = import(&mut browser, copy, "fail", &archive).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    refused.has("Nothing was imported");
    refused.has("/notes/a.md");
    let kept = import(&mut browser, copy, "skip", &archive).await;
    has_counts(&kept, [0, 0, 2, 1, 0]);
    assert_eq!(memories(&client, copy).await["/notes/a.md"].0, "mine");
    let replaced = import(&mut browser, copy, "replace", &archive).await;
    has_counts(&replaced, [0, 1, 2, 0, 0]);
    assert_eq!(memories(&client, copy).await, original);
    let invalid = import(&mut browser, copy, "merge", &archive).await;
    assert_eq!(invalid.status, 400);
    invalid.has("`on_conflict` must be `fail`, `skip` or `replace`");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_archive_changes_nothing() {
    let (_deployment, tenant, server, mut browser) = console_on(Pair::Sqlite).await;
    let (client, store_id) = (server.client(&tenant), tenant.store_id.to_string());
    fill(&client, &store_id).await;
    let archive = saved(&browser, &store_id, "").await;
    let before = memories(&client, &store_id).await;
    let (_, mut forged) = unpacked(&archive);
    forged.insert("memories/ñ 日.md".to_owned(), b"forged".to_vec());
    // The commands show each damage of the content.
    for (file, fault) in [
        (packed(&forged), "memories/ñ 日.md has the SHA-256"),
        (archive[..archive.len() - 5].to_vec(), "notes.tar.zst is damaged"),
        (Vec::new(), "`file` must be an archive"),
    ] {
        let page = browser.open("/console/transfer").await;
        let (token, once) = (page.field("token"), page.field("once"));
        let form =
            [("token", token.as_str()), ("once", once.as_str()), ("name", "New"), ("on_conflict", "replace")];
        let refused = send_form(&mut browser, &form, &file).await;
        assert_eq!(refused.status, 400, "{fault}: {}", refused.text);
        refused.has(fault);
        let refused = import(&mut browser, &store_id, "replace", &file).await;
        assert_eq!(refused.status, 400, "{fault}: {}", refused.text);
    }
    assert_eq!(memories(&client, &store_id).await, before);
    let stores = client.get("/v1/memory_stores").await.json();
    assert_eq!(stores["data"].as_array().unwrap().len(), 1, "{stores}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_large_and_malformed_uploads_are_refused() {
    let (_deployment, tenant, _server, mut browser) = console_on(Pair::Sqlite).await;
    let store_id = tenant.store_id.to_string();
    let archive = saved(&browser, &store_id, "").await;
    for token in ["", "x"] {
        let form = [("token", token), ("store", store_id.as_str()), ("on_conflict", "fail")];
        let forged = send_form(&mut browser, &form, &archive).await;
        assert_eq!(forged.status, 403, "{token}");
    }
    let large = import(&mut browser, &store_id, "fail", &vec![0; MAX_UPLOAD_BYTES]).await;
    assert_eq!(large.status, 413, "{}", large.text);
    let token = browser.open("/console/transfer").await.field("token");
    let post = |content_type: &str, body: String| {
        let request = browser.request(Method::POST, "/console/transfer");
        request.header("content-type", content_type).body(body)
    };
    let form = format!("token={token}&store={store_id}");
    let urlencoded = post("application/x-www-form-urlencoded", form);
    let cut_off = "--x\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ncut off";
    let broken = post("multipart/form-data; boundary=x", cut_off.to_owned());
    for (request, status) in [(urlencoded, 415), (broken, 400)] {
        let refused = browser.send(request).await;
        assert_eq!(refused.status, status, "{}", refused.text);
    }
    let long = "x".repeat(32 << 10);
    let many = vec![("x", "1"); 20];
    for fields in [&[("name", long.as_str())][..], &many] {
        let refused = send_form(&mut browser, fields, &archive).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        refused.has("the form is not valid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn import_needs_rights_and_keeps_within_limits() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let provision = deployment.provision().await;
    let few = LimitOverrides { memories_per_store: Some(2), ..LimitOverrides::default() };
    let mine = provision.tenant(LimitOverrides::default()).await;
    let theirs = provision.tenant(few).await;
    let reader = provision.key(mine.id, &[Scope::MemoryRead], None).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&mine);
    fill(&client, &mine.store_id.to_string()).await;
    let mut browser = Browser::signed_in(&server.url(), &mine.key).await;
    let archive = saved(&browser, &mine.store_id.to_string(), "").await;

    let foreign = theirs.store_id.to_string();
    let path = format!("/console/stores/{foreign}/archive");
    assert_eq!(browser.get(&path).await.status, 404);
    let refused = import(&mut browser, &foreign, "replace", &archive).await;
    assert_eq!(refused.status, 404, "{}", refused.text);

    let mut reading = Browser::signed_in(&server.url(), &reader).await;
    let page = reading.open("/console/transfer").await;
    page.lacks("Import an archive");
    let token = reading.open("/console/stores").await.field("token");
    let own = mine.store_id.to_string();
    let form = [("token", token.as_str()), ("store", own.as_str()), ("on_conflict", "skip")];
    assert_eq!(send_form(&mut reading, &form, &archive).await.status, 403);
    assert!(!saved(&reading, &own, "").await.is_empty());

    let mut limited = Browser::signed_in(&server.url(), &theirs.key).await;
    let report = import(&mut limited, &foreign, "fail", &archive).await;
    assert_eq!(report.status, 200, "{}", report.text);
    has_counts(&report, [2, 0, 0, 0, 1]);
    assert_eq!(memories(&server.client(&theirs), &foreign).await.len(), 2);
}
