//! The chart's examples, installed with the commands that they name: each file of
//! values begins with the commands of its installation, and the notes that the
//! installation prints continue with the commands that create a key.
//!
//! Bash runs the commands unchanged. `kubectl` and `helm` are the programs of
//! `tests/chart/cluster`, which run the binary instead of containers. The test sets
//! only ports, and the addresses and credentials of the stores.

use keepsake_testkit::keepsake_server::free_port;
use keepsake_testkit::{TestDatabase, fresh_database, s3, s3_options};
use secrecy::ExposeSecret;
use sqlx::postgres::PgPoolOptions;

use super::rendering::{EXAMPLE_RELEASE, Pod};
use super::*;

pub(super) fn folder() -> PathBuf {
    repository().join("helm/keepsake/examples")
}

#[tokio::test(flavor = "multi_thread")]
async fn example_of_a_single_node_runs() {
    let installation = Installation::new("single-node").await;
    let (chart, store) = installation.runs(&[]).await;
    // The volume outlives the pod.
    let pod = chart.start("gateway").await;
    assert_eq!(store.paths().await, ["/hello.md"]);
    pod.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn example_of_postgres_and_s3_with_irsa_runs() {
    let installation = Installation::new("postgres-s3-irsa").await;
    let container = installation.chart().await.main_container("gateway");
    let mut names = container.variables.iter().map(|(name, _)| name.as_str());
    assert!(names.all(|name| name != "KEEPSAKE_BLOBS_SECRET_ACCESS_KEY"));
    installation.runs(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_of_minio_and_of_everything_run() {
    let run = async |example, more: &[&str]| drop(Installation::new(example).await.runs(more).await);
    tokio::join!(run("minio", &[]), run("everything", &["worker"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecar_of_the_example_synchronises_a_folder() {
    let installation = Installation::new("postgres").await;
    let chart = installation.chart().await;
    let gateway = installation.start(&chart).await;
    let (store, key) = installation.follow_notes(&chart).await;
    let file = folder().join("sync-sidecar.yaml");
    installation.cluster.run(&commands_of(&file), &[("KEY", &key)]).await;
    let upgraded = installation.chart().await;
    let (mut sidecar, memory) = upgraded.start_sidecar("agent");
    store.create("/from-store.md", "From the store.\n").await;
    std::fs::write(memory.join("from-agent.md"), "From the agent.\n").unwrap();
    soon("both sides have both", async || {
        let memories = store.client.all(&format!("{}?view=full", store.memories())).await;
        let has_uploaded = memories.iter().any(|memory| memory["content"] == "From the agent.\n");
        let downloaded = std::fs::read_to_string(memory.join("from-store.md"));
        has_uploaded && downloaded.is_ok_and(|content| content == "From the store.\n")
    })
    .await;
    sidecar.terminate().await;
    assert_eq!(sidecar.wait().await.code(), Some(0), "{}", sidecar.output());
    gateway.end().await;
}

struct Installation {
    cluster: Cluster,
    database: TestDatabase,
    values: Value,
}

impl Installation {
    async fn new(example: &str) -> Self {
        let (cluster, database) = (Cluster(TempDir::new().unwrap()), fresh_database().await);
        let file = folder().join(format!("{example}.yaml"));
        cluster.run(&commands_of(&file), &[]).await;
        assert_eq!(cluster.values(), std::slice::from_ref(&file), "the commands install another example");
        let s3 = s3_options(&s3::unique_prefix());
        let keys = s3.settings.credentials.unwrap();
        let (id, secret) = (keys.access_key_id.as_str(), keys.secret_access_key.expose_secret());
        cluster.replace("access-key-id", id);
        cluster.replace("secret-access-key", secret);
        for key in ["index-url", "app-url", "jobs-url", "owner-url"] {
            cluster.replace(key, &database.url());
        }
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        let ca_file = s3.settings.ca_file.map(|file| file.display().to_string());
        let ca_file = ca_file.map(|file| variable("KEEPSAKE_BLOBS_CA_FILE", &file));
        let mut variables: Vec<_> = ca_file.into_iter().collect();
        if example.ends_with("irsa") {
            // The cluster gives the pod its credentials.
            variables.push(variable("AWS_ACCESS_KEY_ID", id));
            variables.push(variable("AWS_SECRET_ACCESS_KEY", secret));
        }
        let [gateway, operator] = [free_port(), free_port()].map(|port| json!({"port": port}));
        let mut values = json!({"gateway": gateway, "operator": operator, "extraEnv": variables});
        if std::fs::read_to_string(&file).unwrap().contains("url: s3://") {
            values["blobs"] = json!({
                "url": format!("s3://{}/{}", s3.bucket, s3.prefix),
                "endpoint": s3.settings.endpoint,
                "region": s3.settings.region,
                "pathStyle": true,
            });
        }
        Self { cluster, database, values }
    }

    async fn chart(&self) -> Chart {
        self.chart_with(&self.values).await
    }

    async fn chart_with(&self, values: &Value) -> Chart {
        Chart::render(EXAMPLE_RELEASE, &self.cluster.values(), values, self.cluster.objects()).await
    }

    async fn start(&self, chart: &Chart) -> Pod {
        for migration in chart.run_hooks("pre-install").await {
            migration.ok();
        }
        chart.start("gateway").await
    }

    /// Starts every process of the example, follows the notes, upgrades, uses the key,
    /// and ends the processes.
    async fn runs(&self, more: &[&str]) -> (Chart, Store) {
        let chart = self.chart().await;
        let gateway = self.start(&chart).await;
        let mut others = Vec::new();
        for component in more {
            // Processes of this machine share its ports.
            let mut values = self.values.clone();
            values["gateway"]["port"] = free_port().into();
            values["operator"]["port"] = free_port().into();
            others.push(self.chart_with(&values).await.start(component).await);
        }
        let (store, _) = self.follow_notes(&chart).await;
        for test in chart.run_hooks("test").await {
            assert!(test.ok().contains("acme"));
        }
        // An upgrade migrates again while the old processes run.
        for migration in chart.run_hooks("pre-upgrade").await {
            migration.ok();
        }
        store.create("/hello.md", "Remember us.\n").await;
        for worker in others {
            let pool = PgPoolOptions::new().max_connections(1);
            let pool = pool.connect(&self.database.url()).await.unwrap();
            let runs = "SELECT count(*) FROM job_run WHERE ended_at IS NOT NULL AND error IS NULL";
            let ran = async || sqlx::query_scalar::<_, i64>(runs).fetch_one(&pool).await.unwrap() > 0;
            soon("a job has run", ran).await;
            pool.close().await;
            assert!(worker.output().contains("runs the scheduled jobs"), "{}", worker.output());
            assert!(!gateway.output().contains("runs the scheduled jobs"), "{}", gateway.output());
            worker.end().await;
        }
        gateway.end().await;
        assert_ne!(chart.run_hooks("test").await[0].code, Some(0), "nobody answers");
        (chart, store)
    }

    /// Runs the commands of the notes; answers their store, and the key that they end with.
    async fn follow_notes(&self, chart: &Chart) -> (Store, String) {
        // `kubectl exec` runs in this container.
        let variables = chart.main_container("gateway").variables.into_iter();
        let variables: Vec<_> = variables.map(|(name, value)| format!("{name}={value}\0")).collect();
        std::fs::write(self.cluster.0.path().join("environment"), variables.concat()).unwrap();
        let commands: Vec<_> = chart.notes.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        assert!(commands.len() >= 5, "{}", chart.notes);
        let printed = self.cluster.run(&commands.join("\n"), &[]).await;
        let key = printed.lines().last().unwrap().to_owned();
        assert!(key.starts_with("ks_live_"), "{printed}");
        secrets::remember(&key, "an API key");
        let client = Client::new(&chart.public_url(), &key);
        let listed = ok(&client.get(STORES).await);
        assert_eq!(listed["data"][0]["name"], "notes", "{listed}");
        (Store::new(&client, text(&listed["data"][0]["id"])), key)
    }
}

fn commands_of(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let head = text.lines().take_while(|line| line.starts_with('#'));
    let commands: Vec<_> = head.filter_map(|line| line.strip_prefix("#   ")).collect();
    assert!(commands.len() >= 3, "{} has no commands", file.display());
    commands.join("\n")
}

struct Cluster(TempDir);

impl Cluster {
    /// Runs commands of the documentation as a script; answers what they printed.
    async fn run(&self, commands: &str, variables: &[(&str, &str)]) -> String {
        let programs = suite().join("cluster");
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", commands]).current_dir(repository());
        command.env("PATH", format!("{}:{path}", programs.display())).env("CLUSTER", self.0.path());
        command.env("DEPLOYMENT", "keepsake-gateway").env("KEEPSAKE", binary());
        script::run(command.envs(variables.iter().copied())).await
    }

    /// The files of values of the last installation or upgrade.
    fn values(&self) -> Vec<PathBuf> {
        let values = std::fs::read_to_string(self.0.path().join("values")).unwrap();
        values.lines().map(|file| repository().join(file)).collect()
    }

    /// Gives every Secret that has a key another value of it.
    fn replace(&self, key: &str, value: &str) {
        for secret in entries(&self.0.path().join("secret")) {
            let file = secret.join(key);
            if file.exists() {
                std::fs::write(file, value).unwrap();
            }
        }
    }

    fn objects(&self) -> Vec<Value> {
        let kinds = [("secret", "Secret", "stringData"), ("configmap", "ConfigMap", "data")];
        let mut objects = Vec::new();
        for (folder, kind, field) in kinds {
            for object in entries(&self.0.path().join(folder)) {
                let files = entries(&object).into_iter();
                let read = |it: PathBuf| (name_of(&it), Value::from(std::fs::read_to_string(it).unwrap()));
                let data: serde_json::Map<_, _> = files.map(read).collect();
                for secret in ["operator-token", "master-key"].into_iter().filter_map(|key| data.get(key)) {
                    secrets::remember(text(secret), "a secret of an example");
                }
                objects.push(json!({"kind": kind, "metadata": {"name": name_of(&object)}, (field): data}));
            }
        }
        objects
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}
