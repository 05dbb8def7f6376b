//! What the forms refuse, and what they keep when they are sent twice or too late.

use super::*;

async fn write(store: &Store, path: &str, content: &str) -> (Value, String) {
    let memory = store.create(path, content).await;
    let page = format!("{}/memories/{}", page_of(store), text(&memory["id"]));
    (memory, page)
}

fn page_of(store: &Store) -> String {
    format!("/console/stores/{}", store.id)
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_are_created_once_changed_deleted_and_erased_by_metadata() {
    let (_deployment, _, _server, Store { client, .. }, mut browser) = store_in_console().await;
    let list = browser.open("/console/stores").await;
    let once = list.field("once");
    let form = [("name", "Release notes"), ("expires_days", "7"), ("once", once.as_str())];
    let made = browser.submit(&list, "/console/stores", &form).await.answered(303);
    let path = made.location().split('?').next().unwrap();
    let again = browser.submit(&list, "/console/stores", &form).await;
    assert_eq!(again.location(), made.location());
    let endless = [("name", "x"), ("expires_days", "1000001")];
    let refused = browser.submit(&list, "/console/stores", &endless).await.answered(400);
    says(&refused.text, &["Expires after days must be at most 1000000", "min=\"0\" value=\"1000001\""]);
    let stores = client.get("/v1/memory_stores").await.json();
    assert_eq!(stores["data"].as_array().unwrap().len(), 2);
    let of_api = path.replace("/console/stores", "/v1/memory_stores");
    // The API sets also parts of a day, which a save without a change keeps.
    assert_eq!(client.post(&of_api, &json!({"expires_unused_after": 129_600})).await.status, 200);
    let settings = browser.open(&format!("{path}/settings")).await;
    settings.has("value=\"1.5\"");
    let long = [("name", "Notes"), ("policy", "reject"), ("expires_days", "1000001")];
    let refused = browser.submit(&settings, &format!("{path}/settings"), &long).await.answered(400);
    says(&refused.text, &["Nothing was saved.", "value=\"reject\" selected", "value=\"1000001\""]);
    let mut edit = vec![("name", "Notes"), ("description", "other"), ("policy", "reject")];
    edit.extend([("expires_days", "1.5"), ("search_mode", "lexical")]);
    let saved = browser.act(&settings, &format!("{path}/settings"), &edit).await;
    let store = client.get(&of_api).await.json();
    // The undo changes only what was saved, and only if nobody else changed it.
    says(&saved.text, &["\"was_name\" value=\"Notes\"", "\"name\" value=\"Release notes\""]);
    let undo = [("was_name", "Notes"), ("name", "Release notes")];
    browser.act(&saved, &format!("{path}/settings"), &undo).await.has("Undo</button>");
    let undone = client.get(&of_api).await.json();
    assert_eq!([&undone["name"], &undone["description"]], ["Release notes", "other"]);
    let late = browser.submit(&saved, &format!("{path}/settings"), &undo).await.answered(409);
    late.has("Somebody changed the same setting");
    assert_eq!(store["search_mode"], "lexical");
    let settings = browser.open(&format!("{path}/settings")).await;
    settings.has("value=\"lexical\" selected");
    browser.act(&settings, &format!("{path}/settings"), &[("name", "Notes"), ("search_mode", "")]).await;
    assert_eq!(client.get(&of_api).await.json()["search_mode"], json!(null));
    assert_eq!([&store["name"], &store["description"]], ["Notes", "other"]);
    assert_eq!(store["expires_unused_after"], 129_600);

    browser.act(&settings, &format!("{path}/archive"), &[]).await;
    assert!(client.get(&of_api).await.json()["archived_at"].is_string());
    let delete = format!("{path}/delete");
    let unsure = browser.submit(&settings, &delete, &[("confirm", "notes")]).await.answered(400);
    says(&unsure.text, &["The confirmation must be the name of the store", "open><summary>Delete the store"]);
    browser.act(&settings, &delete, &[("confirm", "Notes")]).await;
    assert_eq!(client.get(&of_api).await.status, 404);

    for (name, team) in [("Reds", "red"), ("Blues", "blue")] {
        let new = json!({"name": name, "metadata": {"team": team}});
        assert_eq!(client.post("/v1/memory_stores", &new).await.status, 200);
    }
    browser.open("/console/erasures/preview?store=blu").await.has("the store Blues with everything in it");
    browser
        .open("/console/erasures/preview?store=blu&prefix=a")
        .await
        .has("Type <strong><bdi>/a/</bdi></strong>");
    let unclear = [
        ("prefix=//", "an empty segment"),
        ("path_prefix=/a/", "<code>path_prefix</code> is not known"),
        ("metadata_name=team", "a store or metadata, not both"),
    ];
    for (query, why) in unclear {
        browser.get(&format!("/console/erasures/preview?store=blu&{query}")).await.answered(400).has(why);
    }
    let shown = browser.open("/console/erasures/preview?metadata_name=team&metadata_value=red").await;
    says(&shown.text, &["<li>1 store</li>", "The whole list</summary>", "Reds"]);
    shown.lacks("Blues");
    let once = shown.field("once");
    let chosen = [("metadata_name", "team"), ("metadata_value", "red"), ("once", once.as_str())];
    let unsure = [&chosen[..], &[("confirm", "Reds")]].concat();
    let refused = browser.submit(&shown, "/console/erasures", &unsure).await.answered(400);
    says(&refused.text, &["The confirmation must be erase", "<li>1 store</li>", "Erase for good"]);
    let sure = [&chosen[..], &[("confirm", "erase")]].concat();
    browser.submit(&shown, "/console/erasures", &sure).await.answered(303);
    let erasure = client.get("/v1/erasures").await.json();
    assert_eq!(erasure["data"][0]["selected_by"], "store_metadata", "{erasure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_conflict_shows_the_difference_and_loses_nothing() {
    let (_deployment, tenant, server, store, mut ada) = store_in_console().await;
    let (memory, page) = write(&store, "/shared.md", "one\ntwo\nthree\n").await;
    let at = format!("{page}/edit");
    let mut bob = Browser::signed_in(&server.url(), &tenant.key).await;
    let (first, second) = (ada.open(&at).await, bob.open(&at).await);
    let base = first.field("base_sha256");
    let of_ada = [("content", "one\r\ntwo by Ada\r\n"), ("base_sha256", base.as_str()), ("newlines", "")];
    ada.act(&first, &at, &of_ada).await;
    // After an error, the form that Bob corrects still starts from the text that he saw.
    let long = "x".repeat(102_401);
    let too_long = [("content", long.as_str()), ("base_sha256", base.as_str())];
    let refused = bob.submit(&second, &at, &too_long).await.answered(400);
    let base = refused.field("base_sha256");
    let of_bob = [("content", "one\ntwo by Bob <b>\n"), ("base_sha256", base.as_str())];
    let conflict = bob.submit(&second, &at, &of_bob).await.answered(409);
    says(&conflict.text, &["Somebody else changed this memory", "by Ada", "two by Bob &lt;b>\n</textarea>"]);
    // The browser asks before it leaves a text that was not saved.
    conflict.has("data-unsaved=\"changed\"");
    assert_eq!(store.read(&memory).await["content"], "one\ntwo by Ada\n");

    let edit = ada.open(&at).await;
    let base = edit.field("base_sha256");
    store.delete(&memory).await;
    let late = [("content", "late text"), ("base_sha256", base.as_str()), ("newlines", "crlf")];
    let kept = ada.submit(&edit, &at, &late).await.answered(409);
    says(&kept.text, &["late text", "value=\"/shared.md\"", "name=\"newlines\" value=\"crlf\""]);
    // A new memory at a path that is taken.
    write(&store, "/taken.md", "theirs").await;
    let taken = [("path", "/taken.md"), ("content", "my text"), ("once", "1")];
    let new = format!("{}/new", page_of(&store));
    ada.submit(&edit, &new, &taken).await.answered(400).has("my text");
    // Agents see every path below /memories.
    let doubled = [("path", "/memories/x.md"), ("content", "x"), ("once", "2")];
    let shown = ada.act(&edit, &new, &doubled).await;
    let advice = "rename it to <code class=\"path\"><span class=\"dir\">/</span>x.md";
    says(&shown.text, &["/memories/memories/</span>x.md", advice]);
    // Browsers send every line end as CRLF: a save without a change changes none.
    let (mixed, page) = write(&store, "/mixed.md", "a\nb\r\nc\n").await;
    let at = format!("{page}/edit");
    let edit = ada.open(&at).await;
    let base = edit.field("base_sha256");
    ada.act(&edit, &at, &[("content", "a\r\nb\r\nc\r\n"), ("base_sha256", base.as_str())]).await;
    let kept = store.read(&mixed).await;
    assert_eq!(kept["content"], "a\nb\r\nc\n");
    assert_eq!(kept["memory_version_id"], mixed["memory_version_id"]);
    // A preview saves nothing.
    let preview = [("content", "**bold**\r\n"), ("base_sha256", base.as_str()), ("preview", "1")];
    let shown = ada.submit(&edit, &at, &preview).await.answered(200);
    says(&shown.text, &["<strong>bold</strong>", "**bold**\n</textarea>"]);
    let (writer, _) = store.client.new_key(&["memory:write"]).await;
    let mut writer = Browser::signed_in(&server.url(), &writer).await;
    let unread = writer.get(&at).await.answered(403);
    writer.submit(&unread, &at, &preview).await.answered(403);
    assert_eq!(store.read(&mixed).await["content"], "a\nb\r\nc\n");
    // The policy `redact` replaces secrets in a person's text, as in an agent's.
    let policy = json!({"sensitive_data_policy": "redact"});
    store.client.post(&format!("/v1/memory_stores/{}", store.id), &policy).await.json();
    let with_secret = [("content", "password: hunter2Zq9\n"), ("base_sha256", base.as_str())];
    ada.act(&edit, &at, &with_secret).await.has("replaced text that looks like a secret");
    assert_eq!(store.read(&mixed).await["content"], "password: [redacted:password]\n");
    // Nor is a memory said to be renamed that was not.
    ada.submit(&edit, &format!("{page}/rename"), &[("path", "/taken.md")]).await.answered(409);
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_text_outlives_the_sign_in_and_is_saved_only_by_its_author() {
    let (_deployment, tenant, _server, store, mut browser) = store_in_console().await;
    let (memory, page) = write(&store, "/a.md", "old\n").await;
    let edit = format!("{page}/edit");
    let form = browser.open(&edit).await;
    let (token, base) = (form.field("token"), form.field("base_sha256"));
    let typed = format!("<b>typed</b>\r\n{}", "x".repeat(40_000));
    let content = [("content", typed.as_str()), ("base_sha256", &base), ("newlines", "")];
    let with = |token| [&[("token", token)][..], &content].concat();
    let shown = "&lt;b>typed&lt;/b>";
    // A form of another site is not given back.
    browser.cookies.clear();
    browser.post(&edit, &with("forged")).await.answered(401).lacks("b>typed");
    for said in [("sec-fetch-site", "cross-site"), ("origin", "null")] {
        browser.post_as(said, &edit, &with(&token)).await.answered(401).lacks("b>typed");
    }
    // Of every form with a text, the text is.
    let settings = format!("{}/settings", page_of(&store));
    let (rename, expiry) = (format!("{page}/rename"), format!("{page}/expiry"));
    for (path, name, value) in [
        (settings.as_str(), "description", "typed text"),
        (&rename, "path", "/typed text"),
        (&expiry, "expires_at", "2099-01-31T10:00"),
        (&format!("{}/new", page_of(&store)), "content", "typed text"),
        ("/console/stores", "name", "typed text"),
        ("/console/keys", "name", "typed text"),
        ("/console/transfer", "name", "typed text"),
    ] {
        browser.post(path, &[("token", &token), (name, value)]).await.answered(401).has(value);
    }
    // It comes back after a wrong and a right key, and is saved when it is sent again.
    let mut refused = browser.post(&edit, &with(&token)).await.answered(401);
    for (key, status) in [("ks_live_x", 401), (tenant.key.as_str(), 200)] {
        refused.has(shown);
        let (sign_in, action) = (refused.field("token"), refused.field("typed_action"));
        let fields = [("token", sign_in.as_str()), ("credential", key), ("typed_action", &action)];
        let carried =
            [("typed.token", token.as_str()), ("typed.content", &typed), ("typed.base_sha256", &base)];
        refused = browser.post("/console/sign-in", &[fields, carried].concat()).await.answered(status);
    }
    refused.has(shown);
    assert_eq!(store.read(&memory).await["content"], "old\n");
    // The token of the sign-in that has ended saves nothing, and the page has the new one.
    let stale = browser.post(&edit, &with(&token)).await.answered(403);
    stale.has(shown);
    assert_eq!(stale.field("token"), refused.field("token"));
    browser.act(&refused, &edit, &content).await;
    assert_eq!(store.read(&memory).await["content"], typed.replace("\r\n", "\n"));
    // A form over the limit is given back, and one whose `Host` a proxy has replaced.
    let token = refused.field("token");
    let long = format!("<b>typed</b>{}", "x".repeat(700_000));
    browser.post(&edit, &[("token", &token), ("content", &long)]).await.answered(413).has(shown);
    let proxied = browser.post_as(("origin", "https://memory.example"), &edit, &with(&token)).await;
    proxied.has(shown);
    proxied.answered(403).has("<code>Host</code>");
    // The server does not read this form. The browser still has the text, and can send it again.
    browser.cookies.clear();
    let long = "x".repeat(2_200_000);
    let unread = browser.post(&edit, &[("token", &token), ("content", &long)]).await;
    unread.answered(401).has("load this page again");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_redacted_with_a_word_and_an_expiry_time_is_set() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    let (memory, _) = write(&store, "/ada.md", "about Ada\n").await;
    let version = memory["memory_version_id"].as_str().unwrap();
    store.update(&memory, &json!({"content": "about nobody\n"})).await;
    write(&store, "/also.md", "about Ada\n").await;
    let redact = format!("{}/versions/{version}/redact", page_of(&store));
    let preview = browser.open(&redact).await;
    let unsure = browser.submit(&preview, &redact, &[("confirm", "yes")]).await.answered(400);
    says(&unsure.text, &["The confirmation must be the word redact", "Redact the version</button>"]);
    says(&browser.open(&redact).await.text, &["about Ada", "also.md"]);
    // A secret is removed from the text, and from each version that holds it.
    let (memory, page) = write(&store, "/key.md", "a s3cr3t\n").await;
    store.update(&memory, &json!({"content": "a s3cr3t, b\n"})).await;
    let at = format!("{page}/secret");
    let form = browser.open(&at).await;
    browser.submit(&form, &at, &[("secret", "s3")]).await.answered(400).has("at least 4 characters");
    let preview = browser.submit(&form, &at, &[("secret", "s3cr3t")]).await.answered(200);
    says(&preview.text, &["2 versions will be redacted", "/readers\">look at it</a> first"]);
    assert_eq!(store.read(&memory).await["content"], "a s3cr3t, b\n");
    // A confirmation of something else than the preview showed removes nothing.
    let seen = preview.field("seen");
    let other = [("secret", "a s3cr3t"), ("confirm", "remove"), ("seen", seen.as_str())];
    browser.submit(&form, &at, &other).await.answered(409).has("look again. Nothing was removed.");
    store.update(&memory, &json!({"content": "a s3cr3t, c\n"})).await;
    let sure = [("secret", "s3cr3t"), ("confirm", "remove"), ("seen", seen.as_str())];
    let preview = browser.submit(&form, &at, &sure).await.answered(409);
    preview.has("3 versions will be redacted");
    assert_eq!(store.read(&memory).await["content"], "a s3cr3t, c\n");
    let seen = preview.field("seen");
    let sure = [("secret", "s3cr3t"), ("confirm", "remove"), ("seen", seen.as_str())];
    let receipt = browser.submit(&form, &at, &sure).await.answered(200);
    says(&receipt.text, &["3 versions of the memory were redacted", "\">modified <time datetime="]);
    receipt.lacks("The secret is still in");
    let newest = store.read(&memory).await;
    assert_eq!(newest["content"], "a [removed], c\n");
    let to = newest["memory_version_id"].as_str().unwrap();
    browser.open(&format!("{}/compare?to={to}", page_of(&store))).await.has("each line looks added");
    let versions = format!("/v1/memory_stores/{}/memory_versions?view=full", store.id);
    store.client.get(&versions).await.lacks("s3cr3t");
    let first = memory["memory_version_id"].as_str().unwrap();
    browser.open(&format!("{page}/history")).await.has(&format!("/versions/{first}\">View</a>"));
    let shown = browser.open(&format!("{}/versions/{first}", page_of(&store))).await;
    shown.has("<h1>Redacted version</h1>");
    let compared = browser.open(&format!("{}/compare?to={first}", page_of(&store))).await;
    compared.has("<h1>Changes of a redacted version</h1>");
    // A path cannot be edited here: the page says that the secret is still there.
    let (_, page) = write(&store, "/s3cr3t.md", "x\n").await;
    let at = format!("{page}/secret");
    let preview = browser.submit(&form, &at, &[("secret", "s3cr3t")]).await.answered(200);
    preview.has("The path of the memory has the secret");
    let seen = preview.field("seen");
    let sure = [("secret", "s3cr3t"), ("confirm", "remove"), ("seen", seen.as_str())];
    let receipt = browser.submit(&form, &at, &sure).await.answered(200);
    says(&receipt.text, &["The secret is still in these versions", "The path of the memory has the secret"]);

    let (memory, page) = write(&store, "/a.md", "x").await;
    let end = ("expires_at", "2099-01-31T10:00");
    for (field, pinned) in [(("action", "pin"), true), (("action", "unpin"), false), (end, false)] {
        let form = browser.open(&page).await;
        browser.act(&form, &format!("{page}/expiry"), &[field]).await;
        assert_eq!(store.read(&memory).await["pinned"], pinned);
    }
    browser.open(&page).await.has("2099-01-31 10:00:00 UTC");
    // A save without a change keeps the seconds.
    store.update(&memory, &json!({"expires_at": "2099-01-31T10:00:30Z"})).await;
    let form = browser.open(&page).await;
    browser.act(&form, &format!("{page}/expiry"), &[end]).await;
    browser.open(&page).await.has("2099-01-31 10:00:30 UTC");
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_removed_from_a_long_history_in_parts() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    let (memory, page) = write(&store, "/key.md", "a s3cr3t\n").await;
    for number in 0..100 {
        store.update(&memory, &json!({"content": format!("{number} s3cr3t\n")})).await;
    }
    let at = format!("{page}/secret");
    let form = browser.open(&at).await;
    let (secret, mut from) = (("secret", "s3cr3t"), String::new());
    for (versions, is_last) in [("100 versions", false), ("1 version", true)] {
        let part = ("from", from.as_str());
        let preview = browser.submit(&form, &at, &[secret, part]).await.answered(200);
        preview.has(&format!("{versions} will be redacted"));
        let seen = preview.field("seen");
        let sure = [secret, part, ("confirm", "remove"), ("seen", seen.as_str())];
        let receipt = browser.submit(&form, &at, &sure).await.answered(200);
        receipt.has(&format!("{versions} of the memory"));
        for (shown, part) in [(&preview, "it has older ones"), (&receipt, "still in older versions")] {
            if is_last { shown.lacks(part) } else { shown.has(part) }
        }
        if !is_last {
            from = receipt.field("from");
        }
    }
    let versions = store.history().await;
    assert_eq!(versions.iter().filter(|version| !version["redacted_at"].is_null()).count(), 101);
}
