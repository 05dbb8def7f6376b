use std::sync::atomic::{AtomicBool, Ordering};

use super::browser::UPLOAD;
use super::*;
use crate::support::archives::unpacked;

const MAX_UPLOAD_BYTES: usize = 16 << 20;

async fn saved(browser: &Browser, store: &Store, query: &str) -> Vec<u8> {
    let path = format!("/console/stores/{}/archive{query}", store.id);
    let answer = browser.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["cache-control"], "private, no-store");
    let disposition = answer.headers()["content-disposition"].to_str().unwrap();
    assert!(disposition.starts_with("attachment;") && disposition.ends_with(".tar.zst"), "{disposition}");
    answer.bytes().await.unwrap().to_vec()
}

async fn upload(browser: &mut Browser, fields: &[(&str, &str)], file: &[u8]) -> Page {
    let token = browser.open(UPLOAD).await.field("token");
    let request = browser.form_with_file(&[&[("token", token.as_str())], fields].concat(), file);
    browser.send(request).await
}

async fn import(browser: &mut Browser, store_id: &str, on_conflict: &str, file: &[u8]) -> Page {
    upload(browser, &[("store", store_id), ("on_conflict", on_conflict)], file).await
}

/// That a report counts the created, replaced, unchanged, skipped and refused memories.
#[track_caller]
fn has_counts(report: &Page, expected: [usize; 5]) {
    for (name, count) in "created replaced unchanged skipped refused".split(' ').zip(expected) {
        report.has(&format!("id=\"{name}\">{count}</dd>"));
    }
}

async fn contents(store: &Store) -> Vec<Value> {
    let listed = store.client.all(&format!("{}?view=full", store.memories())).await;
    let kept = |it: &Value| json!([it["path"], it["content"], it["pinned"], it["expiry_time"]]);
    listed.iter().map(kept).collect()
}

/// A store with a history, paths that differ in case, a pin, and an expiry time.
async fn fill(store: &Store) {
    store.create("/notes/a.md", "one").await;
    let ending = store.create("/Notes/a.md", "two").await;
    let deleted = store.create("/deleted.md", "gone").await;
    let changed = store.create("/ñ 日.md", "before").await;
    store.update(&changed, &json!({"content": "after", "pinned": true})).await;
    store.update(&ending, &json!({"expires_at": "2099-01-01T00:00:00Z"})).await;
    store.delete(&deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_archive_equals_that_of_the_command() {
    let (_deployment, tenant, server, store, browser) = store_in_console().await;
    fill(&store).await;
    let home = TempDir::new().unwrap();
    let variables = server.variables(&tenant, home.path());
    for (query, more) in [("", ""), ("?versions=true", "--versions")] {
        let of_console = unpacked(&saved(&browser, &store, query).await);
        let target = home.path().join(format!("archive{more}.tar.zst"));
        let export = format!("export {} {more}", target.display());
        keepsake_with(&words(&export), &borrowed(&variables)).await.ok();
        let of_command = unpacked(&std::fs::read(&target).unwrap());
        assert_eq!(of_console, of_command, "{query}");
        assert_eq!(of_console.1["memories/ñ 日.md"], b"after");
        assert_eq!(of_console.1.contains_key("versions.jsonl"), !more.is_empty());
    }
}

/// A memory that moves from the part of the listing that is still to come to the part that
/// was read is on no page.
#[tokio::test(flavor = "multi_thread")]
async fn export_has_the_memories_that_are_renamed_meanwhile() {
    const MEMORIES: usize = 2_000;
    // A fast one may end before a memory is renamed.
    const EXPORTS: usize = 5;
    let (_deployment, _, _server, store, browser) = store_in_console().await;
    let mut memories = Vec::new();
    let create = |n| json!({"type": "create", "path": format!("/z/{n:04}.md"), "content": "kept"});
    for first in (0..MEMORIES).step_by(500) {
        let operations: Vec<_> = (first..first + 500).map(create).collect();
        let batch = ok(&store.batch(&json!({"operations": operations})).await);
        memories.extend(batch["data"].as_array().unwrap().iter().map(|made| made["memory"].clone()));
    }
    let is_saved = AtomicBool::new(false);
    let rename_all = async {
        // From the end to the beginning and back.
        for (round, directory) in ["a", "z"].into_iter().cycle().enumerate() {
            for moved in memories.rchunks(8) {
                if is_saved.load(Ordering::Relaxed) {
                    return;
                }
                let rename = async |memory: &Value| {
                    let path = format!("/{directory}/{round}/{}.md", text(&memory["id"]));
                    store.update(memory, &json!({"path": path})).await;
                };
                join_all(moved.iter().map(rename)).await;
            }
        }
    };
    let save = async {
        let mut archives = Vec::new();
        for _ in 0..EXPORTS {
            archives.push(saved(&browser, &store, "").await);
        }
        is_saved.store(true, Ordering::Relaxed);
        archives
    };
    let (archives, ()) = tokio::join!(save, rename_all);
    for archive in archives {
        let (_, files) = unpacked(&archive);
        let index = String::from_utf8(files["index.jsonl"].clone()).unwrap();
        let missing = memories.iter().filter(|memory| !index.contains(text(&memory["id"]))).count();
        assert_eq!((missing, index.lines().count()), (0, MEMORIES));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_is_imported_once_and_a_damaged_or_large_one_changes_nothing() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    fill(&store).await;
    let archive = saved(&browser, &store, "?versions=true").await;
    let form = [("once", "1"), ("store", ""), ("name", "Copy"), ("on_conflict", "fail")];
    let report = upload(&mut browser, &form, &archive).await.answered(200);
    has_counts(&report, [3, 0, 0, 0, 0]);
    report.has("versions. The console imports what each memory contains now");
    let again = upload(&mut browser, &form, &archive).await;
    has_counts(&again, [0, 0, 3, 0, 0]);
    let mut copies = store.client.all("/v1/memory_stores").await;
    copies.retain(|store| store["name"] == "Copy");
    assert_eq!(copies.len(), 1, "{copies:?}");
    let target = Store::new(&store.client, text(&copies[0]["id"]));
    let copy = target.id.as_str();
    let original = contents(&store).await;
    assert_eq!(contents(&target).await, original);
    assert!(original.contains(&json!(["/ñ 日.md", "after", true, null])), "{original:?}");
    assert!(original.iter().any(|memory| memory[3] == "2099-01-01T00:00:00.000000Z"), "{original:?}");
    // Other content at a path.
    ok(&target.upsert("/notes/a.md", "mine").await);
    let refused = import(&mut browser, copy, "fail", &archive).await.answered(409);
    says(&refused.text, &["Nothing was imported", "/notes/a.md"]);
    has_counts(&import(&mut browser, copy, "skip", &archive).await, [0, 0, 2, 1, 0]);
    import(&mut browser, copy, "merge", &archive).await.answered(400).has("On conflict must be");
    // The commands and the API show each damage of the content.
    let cut_off = &archive[..archive.len() - 5];
    for (file, fault) in [
        (cut_off, "notes.tar.zst is damaged"),
        (&b"text"[..], "is no archive"),
        (&[], "File must be an archive"),
    ] {
        let form = [("once", "2"), ("name", "New"), ("on_conflict", "replace")];
        upload(&mut browser, &form, file).await.answered(400).has(fault);
        import(&mut browser, copy, "replace", file).await.answered(400);
    }
    assert!(contents(&target).await.contains(&json!(["/notes/a.md", "mine", false, null])));
    assert_eq!(store.client.all("/v1/memory_stores").await.len(), 2);

    import(&mut browser, &store.id, "fail", &vec![0; MAX_UPLOAD_BYTES]).await.answered(413);
    let post = |content_type: &str, body: &str| {
        let request = browser.request(Method::POST, UPLOAD).header("content-type", content_type);
        request.body(body.to_owned())
    };
    let urlencoded = post("application/x-www-form-urlencoded", "token=x");
    let cut_off = "--x\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ncut off";
    let broken = post("multipart/form-data; boundary=x", cut_off);
    browser.send(urlencoded).await.answered(415);
    browser.send(broken).await.answered(400);
    for fields in [&[("name", "x".repeat(32 << 10).as_str())][..], &[("x", "1"); 20]] {
        upload(&mut browser, fields, b"").await.answered(400).has("form is not valid");
    }
}
