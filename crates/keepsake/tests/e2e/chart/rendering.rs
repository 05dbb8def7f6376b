//! A rendered chart, and its containers as processes of this machine.
//!
//! What Kubernetes does with a pod's spec is done here: files are laid out from
//! config maps and volumes, variables filled from Secrets, probes followed,
//! Services resolved. Paths of mounts become folders of the test's own.

use keepsake_testkit::RunningServer;

use super::*;
use crate::support::client;

/// The name of a release, and the chart's name for its objects.
const RELEASE: [&str; 2] = ["tests", "tests-keepsake"];
pub(crate) const EXAMPLE_RELEASE: [&str; 2] = ["keepsake", "keepsake"];
/// Between two looks at a probe; the kubelet's own are seconds apart.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn suite() -> PathBuf {
    repository().join("tests/chart")
}

pub(crate) struct Chart {
    objects: Vec<Value>,
    /// Secrets and config maps that were created before the release. Without any,
    /// values of Secrets outside the release are invented.
    outside: Vec<Value>,
    pub(crate) notes: String,
    name: &'static str,
    folder: TempDir,
}

pub(crate) struct Container {
    arguments: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
}

pub(crate) struct Pod {
    process: RunningServer,
    grace: Duration,
}

impl Chart {
    pub(crate) async fn render_set(file: &Path) -> Self {
        Self::render(RELEASE, &[file.to_owned()], &json!({}), Vec::new()).await
    }

    pub(crate) async fn render(
        [release, name]: [&'static str; 2],
        files: &[PathBuf],
        values: &Value,
        outside: Vec<Value>,
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let of_test = folder.path().join("values.yaml");
        std::fs::write(&of_test, values.to_string()).unwrap();
        let mut command = Command::new(script::from_environment(CHART_PYTHON));
        command.arg("-B").arg(suite().join("render.py")).arg(release).args(files).arg(of_test);
        let rendered = script::run(command.current_dir(repository())).await;
        let rendered: Value = serde_json::from_str(&rendered).unwrap();
        let (objects, notes) = (array(&rendered["objects"]).to_vec(), text(&rendered["notes"]).to_owned());
        Self { objects, outside, notes, name, folder }
    }

    /// Runs the containers of an event's hooks, lower weights first. They find only
    /// the objects that earlier hooks created.
    pub(crate) async fn run_hooks(&self, event: &str) -> Vec<Run> {
        let mut hooks: Vec<_> =
            self.objects.iter().filter(|object| hook_events(object).any(|of| of == event)).collect();
        hooks.sort_by_key(|hook| {
            let weight = hook["metadata"]["annotations"]["helm.sh/hook-weight"].as_str();
            weight.map_or(0, |weight| weight.parse::<i64>().unwrap())
        });
        let mut there: Vec<&Value> = if event == "test" { self.ordinary().collect() } else { Vec::new() };
        let mut runs = Vec::new();
        for hook in hooks {
            if let Some(spec) = pod_spec(hook) {
                let container = self.container(spec, &spec["containers"][0], &there);
                runs.push(container.run(&container.arguments()).await);
            }
            there.push(hook);
        }
        runs
    }

    /// Starts the pod of a Deployment and waits until it is ready, as its probes say.
    pub(crate) async fn start(&self, component: &str) -> Pod {
        let spec = self.spec_of(component);
        let mut pod = Pod {
            process: self.main_container(component).spawn(),
            grace: Duration::from_secs(number(&spec["terminationGracePeriodSeconds"])),
        };
        let of_container = &spec["containers"][0];
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            pod.follow(&of_container[probe], &of_container["ports"]).await;
        }
        pod
    }

    pub(crate) fn main_container(&self, component: &str) -> Container {
        self.first_container(self.spec_of(component))
    }

    fn first_container(&self, spec: &Value) -> Container {
        self.container(spec, &spec["containers"][0], &self.ordinary().collect::<Vec<_>>())
    }

    fn spec_of(&self, component: &str) -> &Value {
        pod_spec(self.named("Deployment", &format!("{}-{component}", self.name))).unwrap()
    }

    /// Starts the sidecar of a Deployment that is not the chart's, and answers the
    /// folder of its volume.
    pub(crate) fn start_sidecar(&self, deployment: &str) -> (RunningServer, PathBuf) {
        let spec = pod_spec(self.named("Deployment", deployment)).unwrap();
        let sidecar = &spec["initContainers"][0];
        assert_eq!(sidecar["restartPolicy"], "Always", "{sidecar}");
        assert_eq!(sidecar["image"], self.spec_of("gateway")["containers"][0]["image"]);
        let container = self.container(spec, sidecar, &self.ordinary().collect::<Vec<_>>());
        let [volume] = array(&spec["volumes"]) else { panic!("one volume: {spec}") };
        (container.spawn(), self.folder_of(volume))
    }

    pub(crate) fn public_url(&self) -> String {
        self.url(self.name)
    }

    /// Where a Service leads, as a URL: to the port of the pods that it selects.
    fn url(&self, service: &str) -> String {
        let service = &self.named("Service", service)["spec"];
        let selector = service["selector"].as_object().unwrap();
        let selected = self.ordinary().find(|object| {
            let labels = &object["spec"]["template"]["metadata"]["labels"];
            object["kind"] == "Deployment" && selector.iter().all(|(name, value)| &labels[name] == value)
        });
        let spec = pod_spec(selected.unwrap()).unwrap();
        let target = &service["ports"][0]["targetPort"];
        let port = port_named(&spec["containers"][0]["ports"], target);
        format!("http://127.0.0.1:{port}")
    }

    pub(crate) fn memory_limit_mib(&self) -> i64 {
        let limit = text(&self.spec_of("gateway")["containers"][0]["resources"]["limits"]["memory"]);
        limit.strip_suffix("Mi").unwrap().parse().unwrap()
    }

    /// The output of `keepsake config check` with the environment of a Deployment's
    /// first pod. Values of Secrets outside the release are invented.
    pub(crate) async fn check_config(&self) -> Run {
        let deployment = self.ordinary().find(|object| object["kind"] == "Deployment");
        let container = self.first_container(pod_spec(deployment.unwrap()).unwrap());
        container.run(&["config", "check", "--config", container.arguments.last().unwrap()]).await
    }

    fn ordinary(&self) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(|object| hook_events(object).next().is_none())
    }

    fn named(&self, kind: &str, name: &str) -> &Value {
        find(self.ordinary(), kind, name).unwrap_or_else(|| panic!("the chart has no {kind} {name}"))
    }

    /// A container of a pod with its files, in a cluster with the objects `there` and
    /// those outside the release.
    fn container(&self, spec: &Value, container: &Value, there: &[&Value]) -> Container {
        let there: Vec<_> = there.iter().copied().chain(&self.outside).collect();
        assert!(container["command"].is_null(), "the image's own program is run");
        let mounts = array(&container["volumeMounts"]).iter().map(|mount| {
            let volume = array(&spec["volumes"]).iter().find(|volume| volume["name"] == mount["name"]);
            (text(&mount["mountPath"]).to_owned(), self.folder_of(volume.unwrap()))
        });
        let places: Vec<_> = mounts.collect();
        for volume in array(&spec["volumes"]) {
            let name = volume["configMap"]["name"].as_str().unwrap_or_default();
            let Some(map) = find(there.iter().copied(), "ConfigMap", name) else { continue };
            let folder = self.folder_of(volume);
            for (file, content) in map["data"].as_object().unwrap() {
                std::fs::write(folder.join(file), moved(text(content), &places)).unwrap();
            }
        }
        let sources = array(&container["envFrom"]).iter();
        let from_maps = sources.flat_map(|source| {
            let name = text(&source["configMapRef"]["name"]);
            let map = find(there.iter().copied(), "ConfigMap", name);
            assert!(map.is_some() || self.outside.is_empty(), "the ConfigMap {name} is not there");
            let data = map.and_then(|map| map["data"].as_object());
            data.into_iter().flatten().map(|(name, value)| (name.clone(), text(value).to_owned()))
        });
        let variables = array(&container["env"]).iter().map(|variable| {
            let value = self.value_of(variable, &there);
            (text(&variable["name"]).to_owned(), self.resolved(&value))
        });
        let arguments = array(&container["args"]).iter();
        let arguments = arguments.map(|argument| self.resolved(&moved(text(argument), &places)));
        Container { arguments: arguments.collect(), variables: from_maps.chain(variables).collect() }
    }

    fn folder_of(&self, volume: &Value) -> PathBuf {
        let folder = self.folder.path().join(text(&volume["name"]));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// An argument in which the address of a Service is where it leads.
    fn resolved(&self, argument: &str) -> String {
        let services = self.ordinary().filter(|object| object["kind"] == "Service");
        let mut addresses = services.map(|service| {
            let (name, port) = (text(&service["metadata"]["name"]), &service["spec"]["ports"][0]);
            (format!("http://{name}:{}", port["port"]), name)
        });
        let address = addresses.find(|(address, _)| argument.contains(address.as_str()));
        address.map_or_else(|| argument.to_owned(), |(from, name)| argument.replace(&from, &self.url(name)))
    }

    fn value_of(&self, variable: &Value, there: &[&Value]) -> String {
        if let Some(value) = variable["value"].as_str() {
            return value.to_owned();
        }
        let reference = &variable["valueFrom"]["secretKeyRef"];
        let (name, key) = (text(&reference["name"]), text(&reference["key"]));
        if let Some(secret) = find(there.iter().copied(), "Secret", name) {
            let value = secret["stringData"][key].as_str();
            return value.unwrap_or_else(|| panic!("the Secret {name} has no {key}")).to_owned();
        }
        assert!(self.outside.is_empty() && !name.starts_with(RELEASE[1]), "the Secret {name} is not there");
        made_up(text(&variable["name"]))
    }
}

impl Container {
    fn arguments(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }

    async fn run(&self, arguments: &[&str]) -> Run {
        let variables = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        keepsake_with(arguments, &variables.collect::<Vec<_>>()).await
    }

    fn spawn(&self) -> RunningServer {
        let command = ServerCommand::new(binary(), "").arguments(&self.arguments());
        let command = self.variables.iter().fold(command, |command, (name, value)| command.env(name, value));
        command.spawn()
    }
}

impl Pod {
    /// Waits for a probe, no longer than its pod would live without it.
    async fn follow(&mut self, probe: &Value, ports: &Value) {
        let get = &probe["httpGet"];
        let url = format!("http://127.0.0.1:{}", port_named(ports, &get["port"]));
        let path = text(&get["path"]);
        let patience = number(&probe["periodSeconds"]) * number(&probe["failureThreshold"]);
        let kubelet = Client::new(&url, "");
        let is_met = tokio::time::timeout(Duration::from_secs(patience), async {
            loop {
                let probed = client::try_send(kubelet.bare(Method::GET, path)).await;
                if probed.is_ok_and(|answer| answer.status == 200) {
                    return;
                }
                tokio::time::sleep(PROBE_INTERVAL).await;
            }
        });
        assert!(is_met.await.is_ok(), "{path} fails: {}", self.process.output());
    }

    pub(crate) fn output(&self) -> String {
        self.process.output()
    }

    /// Ends the pod's process as Kubernetes does; it must exit with 0 within its grace period.
    pub(crate) async fn end(mut self) {
        self.process.terminate().await;
        let ended = tokio::time::timeout(self.grace, self.process.wait()).await;
        assert_eq!(ended.unwrap().code(), Some(0), "{}", self.process.output());
        secrets::assert_none_in(&self.process.output(), "a pod");
    }
}

fn hook_events(object: &Value) -> impl Iterator<Item = &str> {
    let events = object["metadata"]["annotations"]["helm.sh/hook"].as_str();
    events.unwrap_or_default().split(',').filter(|event| !event.is_empty())
}

fn pod_spec(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Pod" => Some(&object["spec"]),
        "Deployment" | "Job" => Some(&object["spec"]["template"]["spec"]),
        _ => None,
    }
}

fn find<'a>(objects: impl IntoIterator<Item = &'a Value>, kind: &str, name: &str) -> Option<&'a Value> {
    let mut objects = objects.into_iter();
    objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// A value of the type of a variable, for Secrets that the chart does not create.
fn made_up(variable: &str) -> String {
    const MASTER_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let value = match variable {
        "KEEPSAKE_INDEX_URL" | "KEEPSAKE_INDEX_JOBS_URL" => "postgres://made:up@database/keepsake",
        "KEEPSAKE_SECRETS_MASTER_KEY" | "KEEPSAKE_SECRETS_PREVIOUS_MASTER_KEY" => MASTER_KEY,
        "KEEPSAKE_TELEMETRY_OTLP_HEADERS" => "authorization=made-up",
        _ => "made-up-made-up-made-up-made-up-",
    };
    value.to_owned()
}

/// A text in which paths of mounts lead to the folders that stand for them.
fn moved(text: &str, places: &[(String, PathBuf)]) -> String {
    if let Some((_, folder)) = places.iter().find(|(path, _)| path == text) {
        return folder.display().to_string();
    }
    // Numbers first: a folder may have the path of a mount in its own.
    let numbered = places.iter().enumerate().fold(text.to_owned(), |text, (number, (path, _))| {
        text.replace(&format!("{path}/"), &format!("\0{number}/"))
    });
    places.iter().enumerate().fold(numbered, |text, (number, (_, folder))| {
        text.replace(&format!("\0{number}/"), &format!("{}/", folder.display()))
    })
}

fn port_named(ports: &Value, name: &Value) -> u64 {
    let port = array(ports).iter().find(|port| &port["name"] == name);
    number(&port.unwrap()["containerPort"])
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}
