use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn plain_folder_is_imported_without_its_invalid_files() {
    let person = Person::new().await;
    let vault = person.path("vault");
    let large = "x".repeat(200_000);
    for (name, content) in [
        ("deep/er/note.md", &b"# Note\n"[..]),
        (".git/objects/a", b"hidden"),
        (".hidden", b"hidden"),
        ("image.png", &[0x89, 0x50, 0xff, 0]),
        ("nul.txt", b"a\0b"),
        ("cafe\u{301}.md", b"decomposed\n"),
        ("large.md", large.as_bytes()),
    ] {
        let file = Path::new(&vault).join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    symlink(person.home.path(), format!("{vault}/link")).unwrap();
    let import = format!("import {vault}");
    let run = person.line(&format!("{import} -o json")).await;
    run.ends(1, "keepsake: 1 file refused");
    let results: Value = serde_json::from_str(&run.stdout).unwrap();
    let results = results["data"].as_array().unwrap();
    let expected = [
        ("/.git", "refused", "is hidden"),
        ("/.hidden", "refused", "is hidden"),
        ("/café.md", "created", ""),
        ("/deep/er/note.md", "created", ""),
        ("/image.png", "refused", "is not text"),
        ("/large.md", "refused", "limit"),
        ("/link", "refused", "is a symbolic link"),
        ("/nul.txt", "refused", "is not text"),
    ];
    assert_eq!(results.len(), expected.len(), "{results:?}");
    for (found, (path, result, reason)) in results.iter().zip(expected) {
        assert_eq!([&found["path"], &found["result"]], [path, result]);
        assert!(found["reason"].as_str().unwrap_or_default().contains(reason), "{found}");
    }
    assert_eq!(person.ok("memory cat café.md").await, "decomposed\n");
    fs::remove_file(format!("{vault}/large.md")).unwrap();
    let again = person.ok(&import).await;
    assert!(again.ends_with(&counts([0, 0, 2, 0, 5])), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn import_over_a_limit_is_refused_before_anything_is_written() {
    let more = format!("{FREE_RATES}memories_per_store = 4\nbytes_per_memory = 10\nbytes_per_tenant = 20\n");
    let person = Person::with(Pair::Sqlite, &ServerConfig { more, ..ServerConfig::default() }).await;
    let many = person.many(5);
    let import = format!("import {many}");
    let told = "nothing was imported: the memory store would hold 5 memories, over the limit of 4; \
                the operator raises the limit: `limits.memories_per_store`";
    person.ends(&import, 1, told).await;
    person.ends(&format!("{import} --dry-run"), 1, told).await;
    let login = format!("login {} --name dev-data", person.server.url());
    person.line_with(&login, &[], &person.tenant.key).await.ok();
    // As `serve --dev` marks its context.
    let file = person.path("keepsake/contexts.toml");
    let contexts = fs::read_to_string(&file).unwrap();
    fs::write(&file, contexts.replace("url = ", "data_dir = \"/data\"\nurl = ")).unwrap();
    let told = "start it again with the variable `KEEPSAKE_LIMITS_MEMORIES_PER_STORE=5` to raise the limit";
    person.ends(&import, 1, told).await;
    assert!(person.contents("").await.is_empty());
    for number in 0..4 {
        fs::write(format!("{many}/{number}.md"), "x".repeat(11)).unwrap();
    }
    let run = person.line(&import).await;
    let why = "4 files will not be imported, the first is /memories/0.md: has 11 bytes, over the limit of 10";
    run.ends(1, why);
    assert!(run.stdout.contains(" /memories/0.md and 3 others"), "{}", run.stdout);
    assert!(run.stdout.ends_with(&counts([1, 0, 0, 0, 4])), "{}", run.stdout);
    person.ok("store create other").await;
    person.line_with("memory put a.md --store other", &[], "0123456789").await.ok();
    fs::write(format!("{many}/5.md"), "number 5\n").unwrap();
    person.ends(&import, 1, "nothing was imported: the tenant would hold 28 B, over the limit of 20 B").await;
    let of_store = json!([person.tenant.store_id]);
    let bound = json!({"name": "b", "scopes": ["memory:read", "memory:write"], "memory_store_ids": of_store});
    let bound = ok(&person.client().post("/v1/api_keys", &bound).await);
    let run = person.line_with(&import, &[("KEEPSAKE_API_KEY", text(&bound["api_key"]))], "").await;
    run.ends(1, "nothing was imported: the tenant would hold more than its limit of 20 B");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_another_server_is_imported() {
    let (person, other) = (Person::new().await, Person::new().await);
    other.put("a.md", "one\n").await;
    other.put("b/c.md", "two\n").await;
    other.ok("memory pin a.md").await;
    let from = format!("import --from-url {} --from-store notes --prefix theirs", other.server.url());
    let run = async |more: &str, key: &str| {
        person.line_with(&format!("{from} {more}"), &[("KEEPSAKE_FROM_API_KEY", key)], "").await
    };
    let is_pinned = async |path: &str| {
        let listed = person.json(&format!("memory ls {path} -o json")).await;
        listed["data"][0]["pinned"] == true
    };
    assert_eq!(run("", &other.reader).await.ok(), counts([2, 0, 0, 0, 0]));
    assert_eq!(person.ok("memory cat theirs/b/c.md").await, "two\n");
    assert!(is_pinned("theirs/a.md").await);
    // A memory that is replaced gets the pin, too.
    other.put("b/c.md", "three\n").await;
    other.ok("memory pin b/c.md").await;
    assert_eq!(run("--on-conflict replace", &other.reader).await.ok(), counts([0, 1, 1, 0, 0]));
    assert!(is_pinned("theirs/b/c.md").await);
    run("", "ks_live_wrong").await.ends(5, "");
    person.ends(&from, 2, "set KEEPSAKE_FROM_API_KEY").await;
}
