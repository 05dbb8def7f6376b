use super::*;

fn results(run: &Run) -> Value {
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    let checks = printed["data"].as_array().unwrap().iter();
    checks.map(|check| (check["check"].as_str().unwrap().to_owned(), check["result"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn problems_are_named_with_what_to_do() {
    let person = Person::new().await;
    person.put("a.md", "text").await;
    let folder = person.path("memory");
    person.ok(&format!("sync {folder}")).await;
    let healthy = json!({
        "server": "ok", "clock": "ok", "version": "ok", "key": "ok", "store": "ok", "search": "ok", "folder": "ok",
    });
    let doctor = format!("doctor {folder} -o json");
    let run = person.line(&doctor).await;
    assert_eq!(results(&run), healthy, "{}", run.stdout);
    run.ends(0, "");
    let table = person.line_with("doctor", &[("KEEPSAKE_API_KEY", &person.reader)], "").await.ok();
    says(&table, &["ok      key", ": memory:read", "ok      store", "notes (memstore_", "): 1 memory, 4 B"]);
    let with = async |variable: &str, value: &str| person.line_with(&doctor, &[(variable, value)], "").await;
    let session = person.session("read_write").await;
    for (run, check, advice) in [
        (with("KEEPSAKE_URL", "http://127.0.0.1:9").await, "server", "start it, or correct the URL"),
        (with("KEEPSAKE_URL", "no url").await, "server", "name a server"),
        (with("KEEPSAKE_API_KEY", "").await, "server", "the API key is empty"),
        (with("KEEPSAKE_API_KEY", "ks_live_unknown").await, "key", "`keepsake login URL`"),
        (with("KEEPSAKE_API_KEY", text(&session["token"])).await, "key", "use an API key"),
        (with("KEEPSAKE_STORE", "nothing").await, "store", "keepsake store list"),
    ] {
        run.ends(1, "1 problem found");
        assert_eq!(results(&run)[check], "problem", "{}", run.stdout);
        assert!(run.stdout.contains(advice), "{advice}: {}", run.stdout);
    }
    let (blind, _) = person.client().new_key(&["keys:admin"]).await;
    let named = [("KEEPSAKE_API_KEY", blind.as_str()), ("KEEPSAKE_STORE", "notes")];
    says(&person.line_with(&doctor, &named, "").await.stdout, &["use a key with the scope memory:read"]);
    person.ok("store create other").await;
    let run = with("KEEPSAKE_STORE", "other").await;
    assert_eq!(results(&run)["folder"], "problem", "{}", run.stdout);
    person.ok("store archive other --yes").await;
    assert_eq!(results(&with("KEEPSAKE_STORE", "other").await)["store"], "problem");
}
