use super::*;

/// The address of the form beside a message.
fn undo_in(page: &Page) -> String {
    let (_, message) = page.text.split_once("role=\"status\"").unwrap();
    let (form, _) = message.split_once(">Undo<").unwrap_or_else(|| panic!("no Undo: {}", page.text));
    form.rsplit_once("action=\"").unwrap().1.split_once('"').unwrap().0.to_owned()
}

async fn undone(browser: &mut Browser, page: &Page) -> Page {
    let page = browser.act(page, &undo_in(page), &[]).await;
    page.has("The change was taken back.");
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_memories_are_found_by_list_link_and_path() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    let base = format!("/console/stores/{}", store.id);
    for number in 0..101 {
        store.delete(&store.create(&format!("/{number}.md"), "x").await).await;
    }
    let memory = store.create("/fact.md", "a fact\n").await;
    let page = format!("{base}/memories/{}", text(&memory["id"]));
    store.delete(&memory).await;
    let newest = browser.open(&format!("{base}/deleted")).await;
    assert!(newest.text.find(&page).unwrap() < newest.text.find("100.md").unwrap());
    newest.lacks("/</span>0.md");
    let next = format!("{base}/deleted{}", newest.after("rel=\"next\" href=\""));
    browser.open(&next).await.has("/</span>0.md");
    let restore = format!("{base}/versions/{}/restore", text(&memory["memory_version_id"]));
    let filtered = browser.open(&format!("{base}/history?operation=deleted")).await;
    says(&filtered.text, &[&format!("{base}/deleted"), &format!("action=\"{restore}\"")]);
    // A filter that leaves out the deletion does not make the memory a live one.
    let filtered = browser.open(&format!("{page}/history?operation=created")).await;
    says(&filtered.text, &["Restore the memory", "<button class=\"link\">Restore</button>"]);
    filtered.lacks("Open the memory");
    assert_eq!(browser.get(&format!("{base}?path=%2Ffact.md")).await.answered(303).location(), page);
    let listed = browser.act(&newest, &restore, &[("from_list", "1")]).await;
    says(&listed.text, &["<h1>Recently deleted</h1>", "The memory was restored."]);
    undone(&mut browser, &listed).await.has("Restore the memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn message_about_a_change_offers_to_take_back_this_change() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    let base = format!("/console/stores/{}", store.id);
    let memory = store.create("/fact.md", "old\n").await;
    let page = format!("{base}/memories/{}", text(&memory["id"]));
    let form = browser.open(&format!("{page}/edit")).await;
    let hash = form.field("base_sha256");
    let edit = [("content", "new\n"), ("base_sha256", hash.as_str())];
    let saved = browser.act(&form, &format!("{page}/edit"), &edit).await;
    let back = undone(&mut browser, &saved).await;
    assert_eq!(store.read(&memory).await["content"], "old\n");
    // An undo can be undone, too.
    let again = undone(&mut browser, &back).await;
    assert_eq!(store.read(&memory).await["content"], "new\n");
    // A form that is sent late takes back nothing else.
    let late = browser.submit(&again, &undo_in(&saved), &[]).await.answered(400);
    late.has("it was changed afterwards");
    late.lacks("what you typed");
    let moved = browser.act(&again, &format!("{page}/rename"), &[("path", "/moved.md")]).await;
    says(&moved.text, &[">renamed</a>", "<span class=\"sub\">was <code"]);
    let kept = undone(&mut browser, &moved).await;
    assert_eq!(store.read(&memory).await["path"], "/fact.md");
    browser.open(&format!("{page}/readers")).await.has("\">renamed <time datetime=");
    let made = [("path", "/made.md"), ("content", "x"), ("once", "1")];
    let made = browser.act(&kept, &format!("{base}/new"), &made).await;
    undone(&mut browser, &made).await.has("deleted the memory");
    let pinned = browser.act(&kept, &format!("{page}/expiry"), &[("action", "pin")]).await;
    browser.act(&pinned, &undo_in(&pinned), &[("action", "unpin")]).await;
    assert_eq!(store.read(&memory).await["pinned"], false);
    let set = browser.act(&kept, &format!("{page}/expiry"), &[("expires_at", "2099-01-31T10:00")]).await;
    let before = set.field("expires_at");
    let back = browser.act(&set, &undo_in(&set), &[("expires_at", before.as_str())]).await;
    assert_eq!(store.read(&memory).await["expires_at"], json!(null));
    back.has("value=\"2099-01-31T10:00:00");
    // A message is shown once.
    browser.open(&page).await.lacks("role=\"status\"");
    // A change without a difference has nothing to take back, nor does a planted cookie offer what another wrote.
    let same = browser.act(&kept, &format!("{page}/rename"), &[("path", "/fact.md")]).await;
    same.has("Nothing was changed");
    same.lacks(">Undo<");
    let (other, _) = store.client.new_key(&["memory:read", "memory:write"]).await;
    let other = store.seen_by(&store.client.with_key(&other));
    let theirs = other.update(&memory, &json!({"content": "theirs"})).await;
    let version = text(&theirs["memory_version_id"]);
    browser.cookies.insert("keepsake_notice".to_owned(), format!("memory_saved.{version}.{page}"));
    let planted = browser.open(&page).await;
    planted.has("The memory was saved");
    planted.lacks(">Undo<");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_key_are_taken_back_after_their_plan_was_shown() {
    let (deployment, tenant, mut server, store, mut browser) = store_in_console().await;
    let base = format!("/console/stores/{}", store.id);
    let mine = store.create("/mine.md", "mine\n").await;
    let (key, key_path) = store.client.new_key(&["memory:read", "memory:write"]).await;
    let key_id = key_path.rsplit('/').next().unwrap();
    let agent = store.seen_by(&store.client.with_key(&key));
    let wrong = agent.create("/wrong.md", "wrong\n").await;
    agent.update(&mine, &json!({"content": "poisoned\n"})).await;
    let mixed = agent.create("/mixed.md", "theirs\n").await;
    store.update(&mixed, &json!({"content": "mine now\n"})).await;

    let undo = format!("{base}/undo");
    let plan = format!("{undo}?actor={key_id}");
    browser.open(&format!("/console/keys/{key_id}")).await.has(&plan);
    browser.open(&format!("{base}/history?actor={key_id}")).await.has(&plan);
    browser.open(&undo).await.has("Choose at least one filter");
    let shown = browser.open(&plan).await;
    let skipped = "it was changed afterwards, by";
    says(&shown.text, &[">restored<", ">deleted<", ">skipped<", skipped, "Undo in 2 memories"]);
    assert_eq!(store.read(&mine).await["content"], "poisoned\n");

    let (once, before) = (shown.field("once"), shown.field("before_seq"));
    let chosen = [("actor", key_id), ("once", once.as_str()), ("before_seq", before.as_str())];
    let done = browser.submit(&shown, &undo, &chosen).await.answered(200);
    done.has("2 memories were changed.");
    assert_eq!(store.read(&mine).await["content"], "mine\n");
    assert_eq!(store.client.get(&store.memory(&wrong)).await.status, 404);
    assert_eq!(store.read(&mixed).await["content"], "mine now\n");
    // Sent twice, it acts once.
    browser.submit(&shown, &undo, &chosen).await.answered(200).has("2 memories were changed.");
    // The undo is taken back in the same way.
    let shown = browser.open(&done.after("class=\"button\" href=\"")).await;
    let own = shown.field("actor");
    let back = [("actor", own.as_str()), ("after_seq", before.as_str())];
    browser.submit(&shown, &undo, &back).await.answered(200).has("2 memories were changed.");
    assert_eq!(store.read(&mine).await["content"], "poisoned\n");
    // Tests that are a gate do not allow a plan.
    let tests = "gate: true\ntests:\n- path: /mine.md\n  contains: mine\n";
    let tests = store.create("/.keepsake/tests.yaml", tests).await;
    let gated = browser.open(&format!("{undo}?path_prefix=/")).await;
    says(&gated.text, &["This would be refused:", "Line 3"]);
    gated.lacks(">Undo in ");
    // Without the scope, a person takes back only their own changes.
    let mut other = Browser::signed_in(&server.url(), &key).await;
    other.get(&format!("{undo}?actor={own}")).await.answered(403).has("stores:admin");
    let shown = other.open(&plan).await;
    shown.has("stores:admin");
    other.open(&format!("{undo}?path_prefix=/")).await.has("The plan");
    other.open(&format!("{base}/history?actor={own}")).await.lacks(&format!("{undo}?"));
    let page = format!("{base}/memories/{}", text(&tests["id"]));
    browser.open(&page).await.has("/edit\"");
    other.open(&page).await.lacks("/edit\"");
    // Nor does a memory that has become a setting get an earlier path back.
    store.update(&mine, &json!({"path": "/.keepsake/mine"})).await;
    let history = format!("{base}/memories/{}/history", text(&mine["id"]));
    for page in [history, format!("{base}/versions/{}", text(&mine["memory_version_id"]))] {
        browser.open(&page).await.has("/restore\"");
        other.open(&page).await.lacks("/restore\"");
    }
    // Without the scope to see keys, the name of a key has no link.
    let history = other.open(&format!("{base}/history")).await;
    history.has("<bdi title=\"apikey_");
    history.lacks("/console/keys/");
    let (reader, _) = store.client.new_key(&["memory:read"]).await;
    let mut reader = Browser::signed_in(&server.url(), &reader).await;
    reader.open(&plan).await.has("memory:write");
    let history = reader.open(&format!("{base}/history")).await;
    history.lacks(&undo);
    history.has(">an API key</span>");
    // Only who may end an undo has the button.
    server.end().await;
    let columns = "tenant_id, store_id, actor_type, actor_id, created_at, undo_id, lease_until, is_cancelled";
    let of_owner =
        columns.replace("undo_id, lease_until, is_cancelled", "zeroblob(16), created_at + 120000000, 0");
    let of_owner = format!("SELECT {of_owner} FROM version WHERE seq = 1");
    deployment.execute(format!("INSERT INTO memory_undo ({columns}) {of_owner}")).await;
    server.restart().await;
    let page = format!("{undo}/{}", keepsake_core::MemoryUndoId::from_uuid(Uuid::nil()));
    for (key, may) in [(&tenant.key, true), (&key, false)] {
        let shown = Browser::signed_in(&server.url(), key).await.open(&page).await;
        assert_eq!(["Cancel the undo", "Undo this"].map(|button| shown.text.contains(button)), [may; 2]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn past_of_a_store_is_shown_compared_and_restored() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    let base = format!("/console/stores/{}", store.id);
    let memory = store.create("/notes/fact.md", "**old**\n").await;
    let gone = store.create("/notes/gone.md", "gone\n").await;
    store.update(&memory, &json!({"content": "**new**\n"})).await;
    store.delete(&gone).await;
    let page = format!("{base}/memories/{}", text(&memory["id"]));

    let list = browser.open(&format!("{base}?path=%2Fnotes%2F&at_seq=2")).await;
    let then = browser.open(&format!("{page}?at_seq=2")).await;
    list.has("gone.md");
    then.has("<strong>old</strong>");
    for shown in [&list, &then] {
        shown.has("This is the past.");
        // The only form with a change is that of the sign-out.
        assert_eq!(shown.text.matches("method=\"post\"").count(), 1, "{}", shown.text);
    }
    then.lacks("/edit");
    browser.open(&format!("{page}?at_seq=2&raw=1")).await.has("**old**");
    browser.open(&format!("{page}?at_seq=4")).await.has("<strong>new</strong>");
    let today = text(&memory["created_at"])[..10].to_owned();
    browser.open(&format!("{page}?at={today}")).await.has("<strong>new</strong>");
    browser.get(&format!("{page}?at_seq=0")).await.answered(404);
    browser.get(&format!("{base}?at_seq=9")).await.answered(400).has("The change must be at most 4");
    browser
        .get(&format!("{base}?at=2999-01-01"))
        .await
        .answered(400)
        .has("The time must not be in the future");
    let leads = browser.get(&format!("{base}?path=%2Fnotes%2Fgone.md&at_seq=2")).await.answered(303);
    assert_eq!(leads.location(), format!("{base}/memories/{}?at_seq=2", text(&gone["id"])));

    browser.open(&format!("{base}/history")).await.has("data-label=\"number\">2<");
    let differences = browser.open(&format!("{base}/diff?from_seq=2")).await;
    says(&differences.text, &[">changed<", ">removed<", "+1</span>", "−1</span>"]);
    browser.open(&format!("{base}/compare?{}", differences.after("/compare?"))).await.has("old");
    browser.open(&format!("{base}/diff")).await.lacks(">changed<");
    let other = ok(&store.client.post("/v1/memory_stores", &json!({"name": "Other"})).await);
    let differences = browser.open(&format!("{base}/diff?other_store_id={}", text(&other["id"]))).await;
    says(&differences.text, &["Other, now", ">removed<", "/versions/"]);

    let fork = browser.open(&format!("{base}/fork?at={today}")).await;
    says(&fork.text, &["name=\"at_seq\" value=\"4\"", "value=\"notes copy\""]);
    let new = [("name", "Fork"), ("fork_of", store.id.as_str()), ("at_seq", "2"), ("once", "1")];
    browser.act(&fork, "/console/stores", &new).await.has("notes</bdi></a> after change 2");

    let restore = format!("{base}/restore");
    let plan = browser.open(&format!("{restore}?at_seq=2")).await;
    plan.has("Restore the store: change 2 memories");
    let once = plan.field("once");
    let point = [("at_seq", "2"), ("once", once.as_str()), ("before_seq", "4")];
    browser.submit(&plan, &restore, &point).await.answered(200).has("2 memories were changed.");
    let all = store.client.all(&format!("{}?view=full", store.memories())).await;
    assert_eq!(strings(&all, "content"), ["**old**\n", "gone\n"]);
    browser.submit(&plan, &restore, &[("at_seq", "2")]).await.answered(400).has("nothing to take back");

    let tests = format!("{base}/tests");
    let none = browser.open(&tests).await;
    browser.open(&none.after("<p><a href=\"")).await.has("max_files: 500");
    let file = "tests:\n- max_files: 500\n- path: /none\n  contains: x\n";
    store.create("/.keepsake/tests.yaml", file).await;
    let shown = browser.open(&tests).await;
    shown.lacks(">holds<");
    let ran = browser.submit(&shown, &tests, &[]).await.answered(200);
    says(&ran.text, &[">holds<", ">does not hold<", "there is no such memory", "They are not a gate."]);
}
