"""The chart with a table of value sets, and with invalid values."""

import json
import re
import unittest

import kubernetes_validate
import yaml

import support
from support import CHART, SETS, at_once, given, helm, merged, objects, pods, render

# Custom resources, which Kubernetes' own schemas do not have.
CUSTOM = {"ServiceMonitor", "PrometheusRule", "HTTPRoute"}

POSTGRES = ["--set", "index.url=postgres://u:p@db/k"]
WORKING = [*POSTGRES, "--set", "operator.token=0123456789abcdef0123456789abcdef"]
SQLITE = [
    "--set",
    "index.kind=sqlite,operator.enabled=false,gateway.replicas=1,gateway.autoscaling.enabled=false",
]

# The values added to valid ones, and the text of the refusal.
REFUSED = [
    (WORKING, "wrong=1", "wrong not allowed"),
    (WORKING, "gateway.replica=3", "replica not allowed"),
    (WORKING, "config.limits.memories_per_stroe=1", "memories_per_stroe"),
    (WORKING, "config.server.listen=0.0.0.0:1", "listen not allowed"),
    (WORKING, "config.server.max_connections=0", "config.server.max_connections"),
    (WORKING, "config.log.format=xml", "config.log.format"),
    (WORKING, "gateway.port=http", "gateway.port"),
    (WORKING, "gateway.port=70000", "gateway.port"),
    (WORKING, "image.digest=latest", "image.digest"),
    (WORKING, "blobs.url=bucket", "blobs.url"),
    (WORKING, "blobs.endpoint=minio:9000", "blobs.endpoint"),
    (WORKING, "search.meaning=on", "search.meaning"),
    (WORKING, "search.meaning=endpoint,search.embeddings.url=http://h/v1", "needs search.embeddings.url, model and dimensions"),
    (WORKING, "search.key=alone", "are only for search.meaning endpoint"),
    (WORKING, "search.modelPath=model", "search.modelPath"),
    (
        WORKING,
        "search.meaning=endpoint,search.embeddings.url=http://h,search.embeddings.model=m,search.embeddings.dimensions=3,search.key=k,search.existingSecret=s",
        "search.key and search.existingSecret are both set",
    ),
    (WORKING, "index.kind=mysql", "index.kind"),
    (WORKING, "index.url=mysql://u:p@db/k", "index.url"),
    (WORKING, "operator.token=short", "operator.token"),
    (WORKING, "secrets.masterKey=short", "secrets.masterKey"),
    (WORKING, "service.type=ExternalName", "service.type"),
    (WORKING, "gateway.resources.limits.memory=plenty", "gateway.resources.limits.memory"),
    (WORKING, "gateway.resources.limits.memory=512K", "gateway.resources.limits.memory"),
    (WORKING, "gateway.podDisruptionBudget.maxUnavailable=150%", "gateway.podDisruptionBudget.maxUnavailable"),
    (WORKING, "persistence.accessModes=null", "persistence"),
    (WORKING, "podAnnotations.a b=c", "a b"),
    (WORKING, "podLabels.-a=b", "-a"),
    (WORKING, "blobs.url=file:///var/lib/keepsake/blobs", "blobs.url"),
    (WORKING, "index.url=", "set index.url, or index.existingSecret"),
    (WORKING, "index.url=sqlite:///var/lib/keepsake/index.db", "needs index.kind sqlite"),
    (WORKING, "index.existingSecret=other", "index.url and index.existingSecret are both set"),
    (WORKING, "blobs.url=s3://b,blobs.accessKeyId=alone", "belong together"),
    (WORKING, "blobs.endpoint=http://minio:9000", "blobs.endpoint is for an object store"),
    (WORKING, "blobs.url=index:,blobs.existingSecret=other", "blobs.existingSecret is for an object store"),
    (WORKING, "operator.existingSecret=other", "operator.token and operator.existingSecret are both set"),
    (WORKING, "secrets.previousMasterKey=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "previousMasterKey needs secrets.masterKey"),
    (WORKING, "telemetry.otlpHeaders=a=b", "otlpHeaders needs config.telemetry.otlp_endpoint"),
    (WORKING, "config.telemetry.sample_ratio=2", "config.telemetry.sample_ratio"),
    (WORKING, "gateway.port=8081", "operator.port and gateway.port must differ"),
    (WORKING, "gateway.autoscaling.maxReplicas=1", "gateway.autoscaling.maxReplicas is below minReplicas"),
    (
        WORKING,
        "worker.enabled=true,worker.autoscaling.enabled=true,worker.autoscaling.maxReplicas=1",
        "worker.autoscaling.maxReplicas is below minReplicas",
    ),
    (WORKING, "httpRoute.enabled=true", "needs httpRoute.parentRefs"),
    (WORKING, "gateway.extraContainers[0].name=alone", "gateway.extraContainers"),
    (WORKING, "gateway.extraContainers[0].env[0].value=1", "gateway.extraContainers.0.env.0.value"),
    (WORKING, "extraEnv[0].name=A,extraEnv[0].value=1", "extraEnv.0.value"),
    (WORKING, "extraEnv[0].name=A,extraEnv[0].value=true", "extraEnv.0.value"),
    (WORKING, "extraEnv[0].name=A=B", "extraEnv.0.name"),
    (WORKING, "extraEnv[0].name=A,extraEnv[0].valueFrom.secretKeyRef.name=s", "extraEnv.0.valueFrom.secretKeyRef"),
    (WORKING, "extraEnv[0].name=A,extraEnv[0].valueFrom.secret.name=s", "secret not allowed"),
    (WORKING, "gateway.strategy.type=Rolling", "gateway.strategy.type"),
    (WORKING, "networkPolicy.operatorFrom[0].ipBlock.cidr=10.0.0.1", "networkPolicy.operatorFrom.0.ipBlock.cidr"),
    (WORKING, "extraEnvFrom[0].secret=more", "secret not allowed"),
    (WORKING, "extraEnvFrom[0].prefix=A", "extraEnvFrom.0"),
    (WORKING, "gateway.tolerations[0].value=1", "gateway.tolerations.0.value"),
    (WORKING, "ingress.hosts={https://a.example}", "ingress.hosts.0"),
    (WORKING, "networkPolicy.egress.databases.to=[]", "databases not allowed"),
    (WORKING, "networkPolicy.egressPorts={443}", "egressPorts not allowed"),
    (WORKING, "prometheusRule.runbookPrefix=docs", "prometheusRule.runbookPrefix"),
    (WORKING, r"podLabels.app\.kubernetes\.io/component=other", "sets the label app.kubernetes.io/component itself"),
    (WORKING, "worker.enabled=true,operator.enabled=false", "worker.enabled needs operator.enabled"),
    (WORKING, "serviceMonitor.enabled=true", "needs networkPolicy.operatorFrom"),
    (WORKING, "ingress.enabled=true", "needs ingress.hosts"),
    (WORKING, "ingress.enabled=true,ingress.hosts={a.example}", "ingress.tls needs a secretName"),
    (POSTGRES, "operator.token=", "set operator.token"),
    (SQLITE, "gateway.replicas=2", "set gateway.replicas to 1"),
    (SQLITE, "gateway.strategy.type=RollingUpdate", "gateway.strategy.type must be Recreate"),
    (SQLITE, "gateway.autoscaling.enabled=true", "set gateway.autoscaling.enabled to false"),
    (SQLITE, "worker.enabled=true", "set worker.enabled to false"),
    (SQLITE, "index.existingSecret=other", "are only for index.kind postgres"),
    (SQLITE, "index.url=sqlite:///tmp/index.db", "must be below sqlite:///var/lib/keepsake/"),
]


class ValueSets(unittest.TestCase):
    def each(self):
        self.assertGreaterEqual(len(SETS), 11)
        rendered = at_once(lambda files: render(*given(files)), SETS)
        yield from zip(SETS, rendered)

    def test_lints_strictly(self):
        sets = [[], *SETS]  # also without values
        linted = at_once(lambda files: helm("lint", "--strict", str(CHART), *given(files)), sets)
        for files, (code, said, errors) in zip(sets, linted):
            with self.subTest(files):
                self.assertEqual(code, 0, said + errors)
                self.assertNotIn("[WARNING]", said)

    def test_is_valid_for_kubernetes(self):
        for files, manifests in self.each():
            for it in objects(manifests):
                if it["kind"] in CUSTOM:
                    continue
                for version in ("1.30", "1.37"):
                    with self.subTest(files[-1].stem, kind=it["kind"], version=version):
                        kubernetes_validate.validate(it, version, strict=True)

    def test_unknown_resources_are_refused_by_the_schemas(self):
        wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"portz": []}}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, "1.37", strict=True)

    def test_pods_are_restricted(self):
        for _, manifests in self.each():
            for name, pod in pods(manifests):
                self.assertIs(pod["automountServiceAccountToken"], False, name)
                self.assertIs(pod["enableServiceLinks"], False, name)
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True, name)
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"}, name)
                for container in [*pod["containers"], *pod.get("initContainers", [])]:
                    security = container["securityContext"]
                    self.assertIs(security["readOnlyRootFilesystem"], True, name)
                    self.assertIs(security["allowPrivilegeEscalation"], False, name)
                    self.assertEqual(security["capabilities"], {"drop": ["ALL"]}, name)
                    self.assertIn("memory", container["resources"]["limits"], name)
                    self.assertIn("cpu", container["resources"]["requests"], name)

    def test_secret_values_are_only_in_secrets(self):
        marks = ["password", "not-a-secret", "0123456789abcdef0123456789abcdef", "MDEyMzQ1", "ZmVkY2Jh"]
        seen = set()
        for _, manifests in self.each():
            for it in objects(manifests):
                # The digest of an image, and the dashboard's own words.
                text = yaml.safe_dump(it).replace("sha256:" + "0123456789abcdef" * 4, "")
                found = {mark for mark in marks if mark in text}
                if it["kind"] == "Secret":
                    seen |= found
                else:
                    self.assertEqual(found, set(), f"{it['kind']}/{it['metadata']['name']}")
        self.assertEqual(seen, set(marks))

    def test_every_reference_has_a_target(self):
        """Names and keys of objects of the release, at the time they are read."""
        for _, manifests in self.each():
            everything = objects(manifests)
            hooks = [it for it in everything if hook_of(it)]
            ordinary = [it for it in everything if not hook_of(it)]
            for it in everything:
                there = hooks if "pre-install" in hook_of(it) else ordinary
                self.check_references(it, there)

    def check_references(self, it, there):
        named = {(other["kind"], other["metadata"]["name"]): other for other in there}
        label = f"{it['kind']}/{it['metadata']['name']}"
        spec = it["spec"] if it["kind"] == "Pod" else it.get("spec", {}).get("template", {}).get("spec")
        if spec is None:
            return
        containers = [*spec["containers"], *spec.get("initContainers", [])]
        account = spec.get("serviceAccountName")
        if account is not None:
            self.assertIn(("ServiceAccount", account), named, label)
        mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
        self.assertEqual(mounted, {volume["name"] for volume in spec.get("volumes", [])}, label)
        for container in containers:
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"].startswith(("tests-", "all-values")):
                    secret = named[("Secret", reference["name"])]
                    self.assertIn(reference["key"], secret["stringData"], label)
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if probe in container:
                    self.assertIn(container[probe]["httpGet"]["port"], ports, label)
        mounts = (mount for container in spec["containers"] for mount in container.get("volumeMounts", []))
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        self.assertEqual({mount["name"] for mount in mounts}, volumes, label)

    def test_services_select_pods_with_their_ports(self):
        for _, manifests in self.each():
            everything = objects(manifests)
            templates = [it["spec"]["template"] for it in everything if it["kind"] == "Deployment"]
            services = [it for it in everything if it["kind"] == "Service"]
            for service in services:
                selector = service["spec"]["selector"].items()
                chosen = [it for it in templates if selector <= it["metadata"]["labels"].items()]
                self.assertTrue(chosen, service["metadata"]["name"])
                for template in chosen:
                    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
                    for port in service["spec"]["ports"]:
                        self.assertIn(port["targetPort"], ports)

    def test_pods_have_time_to_shut_down(self):
        for files, manifests in self.each():
            values = merged(files)
            server = values.get("config", {}).get("server", {})
            deadline = server.get("shutdown_deadline_seconds", 30)
            drain = server.get("drain_seconds", 5)
            for it in objects(manifests):
                if it["kind"] == "Deployment" and is_of_the_chart(it):
                    pod = it["spec"]["template"]["spec"]
                    stop = pod["containers"][0].get("lifecycle", {}).get("preStop", {})
                    pause = stop.get("sleep", {}).get("seconds", 0)
                    self.assertGreater(pod["terminationGracePeriodSeconds"], pause + drain + 3 * deadline)
                    self.assertNotIn("exec", stop)

    def test_operators_port_is_never_public(self):
        for _, manifests in self.each():
            for it in objects(manifests):
                if it["kind"] == "Service" and it["metadata"]["name"].endswith("-operator"):
                    self.assertEqual(it["spec"]["type"], "ClusterIP")
                if it["kind"] in ("Ingress", "HTTPRoute"):
                    self.assertNotIn("operator", yaml.safe_dump(it["spec"]))

    def test_split_roles_render_a_separate_worker(self):
        for files, manifests in self.each():
            deployments = [it for it in objects(manifests) if it["kind"] == "Deployment" and is_of_the_chart(it)]
            roles = {it["spec"]["template"]["spec"]["containers"][0]["args"][2] for it in deployments}
            split = merged(files).get("worker", {}).get("enabled", False)
            self.assertEqual(roles, {"gateway", "worker"} if split else {"all"})

    def test_migration_runs_before_everything_except_its_dependencies(self):
        for files, manifests in self.each():
            hooks = [it for it in objects(manifests) if "pre-install" in hook_of(it)]
            if merged(files)["index"].get("kind") == "sqlite":
                self.assertEqual(hooks, [])
                continue
            weights = {it["kind"]: int(it["metadata"]["annotations"]["helm.sh/hook-weight"]) for it in hooks}
            job = weights.pop("Job")
            self.assertTrue(all(weight < job for weight in weights.values()), weights)
            self.assertTrue(all("pre-upgrade" in hook_of(it) for it in hooks))


class Values(unittest.TestCase):
    """What single values do."""

    def of(self, *values, base=WORKING):
        settings = [argument for value in values for argument in ("--set-json", value)]
        return objects(render(*base, *settings))

    def one(self, kind, name, *values, base=WORKING):
        named = [it for it in self.of(*values, base=base) if (it["kind"], it["metadata"]["name"]) == (kind, name)]
        self.assertEqual(len(named), 1, f"{kind}/{name}")
        return named[0]

    def pod(self, *values):
        return self.one("Deployment", "tests-keepsake-gateway", *values)["spec"]["template"]

    def egress(self, *values, name="tests-keepsake", base=WORKING):
        rules = self.one("NetworkPolicy", name, *values, base=base)["spec"]["egress"]
        return [(sorted(port["port"] for port in rule["ports"]), rule.get("to")) for rule in rules]

    def limit(self, *values):
        return self.pod(*values)["spec"]["containers"][0]["resources"]["limits"]["memory"]

    def test_memory_limit_follows_the_stated_bound(self):
        self.assertEqual(self.limit(), "1024Mi")
        # 256 MiB more of a cache need 299 MiB more.
        self.assertEqual(self.limit('config={"cache":{"blob_bytes":536870912}}'), "1344Mi")
        self.assertEqual(self.limit('config={"cache":{"blob_bytes":0,"search_bytes":0}}'), "448Mi")
        self.assertEqual(self.limit('config={"server":{"max_connections":4096}}'), "1152Mi")
        self.assertEqual(self.limit('gateway.resources={"limits":{"memory":"3Gi"}}'), "3Gi")
        self.assertEqual(self.limit('gateway.resources={"limits":{"cpu":2}}'), "1024Mi")

    def test_probes_are_overridden_in_part(self):
        container = self.pod(
            'gateway.livenessProbe={"periodSeconds":21}', 'gateway.readinessProbe={"tcpSocket":{"port":"http"}}'
        )["spec"]["containers"][0]
        self.assertEqual(container["livenessProbe"]["periodSeconds"], 21)
        self.assertEqual(container["livenessProbe"]["httpGet"]["path"], "/livez")
        self.assertNotIn("httpGet", container["readinessProbe"])
        self.assertEqual(container["readinessProbe"]["tcpSocket"], {"port": "http"})
        self.assertEqual(container["startupProbe"]["failureThreshold"], 60)

    def test_strategy_is_replaced(self):
        for component in ("gateway", "worker"):
            values = ("worker.enabled=true", f'{component}.strategy={{"type":"Recreate"}}')
            it = self.one("Deployment", f"tests-keepsake-{component}", *values)
            self.assertEqual(it["spec"]["strategy"], {"type": "Recreate"})

    def test_workers_scale(self):
        values = ("worker.enabled=true", 'worker.autoscaling={"enabled":true,"maxReplicas":9}')
        scaler = self.one("HorizontalPodAutoscaler", "tests-keepsake-worker", *values)["spec"]
        self.assertEqual(scaler["scaleTargetRef"]["name"], "tests-keepsake-worker")
        self.assertEqual((scaler["minReplicas"], scaler["maxReplicas"]), (2, 9))
        self.assertNotIn("replicas", self.one("Deployment", "tests-keepsake-worker", *values)["spec"])

    def test_default_maxima_fit_into_100_connections(self):
        # As in docs/operations.md, "Connections to Postgres".
        connections = {"gateway": 6 + 6, "worker": 2 + 6}
        values = ("worker.enabled=true", "worker.autoscaling.enabled=true")
        needed = 1  # the migration
        for component, of_each in connections.items():
            name = f"tests-keepsake-{component}"
            most = self.one("HorizontalPodAutoscaler", name, *values)["spec"]["maxReplicas"]
            strategy = self.one("Deployment", name, *values)["spec"]["strategy"]
            needed += (most + strategy["rollingUpdate"]["maxSurge"]) * of_each
        self.assertLessEqual(needed, 100 - 3)

    def test_every_pod_has_the_annotations_and_labels(self):
        values = ("worker.enabled=true", 'podLabels={"a":"1"}', 'podAnnotations={"b":"2"}', 'commonLabels={"c":"3"}')
        seen = 0
        for it in self.of(*values):
            self.assertEqual(it["metadata"]["labels"]["c"], "3", it["kind"])
            pod = it if it["kind"] == "Pod" else it.get("spec", {}).get("template")
            if pod:
                seen += 1
                self.assertLessEqual({"a": "1", "c": "3"}.items(), pod["metadata"]["labels"].items())
                self.assertEqual(pod["metadata"]["annotations"]["b"], "2")
        self.assertEqual(seen, 4, "gateway, worker, migration, test")

    def test_deployments_and_the_job_have_their_own_annotations_and_labels(self):
        for component, kind, name in [
            ("gateway", "Deployment", "tests-keepsake-gateway"),
            ("worker", "Deployment", "tests-keepsake-worker"),
            ("migration", "Job", "tests-keepsake-migration"),
        ]:
            values = ("worker.enabled=true", f'{component}.labels={{"a":"1"}}', f'{component}.annotations={{"b":"2"}}')
            it = self.one(kind, name, *values)
            self.assertEqual((it["metadata"]["labels"]["a"], it["metadata"]["annotations"]["b"]), ("1", "2"))
            values = ("worker.enabled=true", f'{component}.podLabels={{"a":"1"}}', f'{component}.podAnnotations={{"b":"2"}}')
            pod = self.one(kind, name, *values)["spec"]["template"]
            self.assertEqual((pod["metadata"]["labels"]["a"], pod["metadata"]["annotations"]["b"]), ("1", "2"))

    def test_containers_and_variables_are_added(self):
        container = '[{"name":"more","image":"{{ .Values.image.repository }}-more:1"}]'
        pod = self.pod(
            f"gateway.extraContainers={container}",
            f"gateway.initContainers={container}",
            'extraEnvFrom=[{"secretRef":{"name":"more"}}]',
            'extraEnv=[{"name":"MORE","value":"1"}]',
        )["spec"]
        self.assertEqual([it["name"] for it in pod["containers"]], ["keepsake", "more"])
        self.assertEqual(pod["initContainers"], [{"name": "more", "image": "keepsake-more:1"}])
        self.assertEqual(pod["containers"][0]["envFrom"], [{"secretRef": {"name": "more"}}])
        self.assertIn({"name": "MORE", "value": "1"}, pod["containers"][0]["env"])
        job = self.one("Job", "tests-keepsake-migration", 'extraEnvFrom=[{"secretRef":{"name":"more"}}]')
        self.assertEqual(job["spec"]["template"]["spec"]["containers"][0]["envFrom"], [{"secretRef": {"name": "more"}}])

    def test_extra_objects_see_the_names_of_the_chart(self):
        name = '{{ include \\"keepsake.fullname\\" . }}'
        text = f'extraObjects=["apiVersion: v1\\nkind: ConfigMap\\nmetadata: {{name: more, labels: {{of: {name}}}}}"]'
        self.assertEqual(self.one("ConfigMap", "more", text)["metadata"]["labels"]["of"], "tests-keepsake")

    def test_route_leads_to_the_public_service(self):
        route = self.one(
            "HTTPRoute",
            "tests-keepsake",
            'httpRoute={"enabled":true,"parentRefs":[{"name":"public"}],"hostnames":["m.example.com"]}',
            "service.port=8000",
        )
        self.assertEqual(route["apiVersion"], "gateway.networking.k8s.io/v1")
        self.assertEqual(route["spec"]["hostnames"], ["m.example.com"])
        self.assertEqual(route["spec"]["parentRefs"], [{"name": "public"}])
        [rule] = route["spec"]["rules"]
        self.assertEqual(rule["backendRefs"], [{"name": "tests-keepsake", "port": 8000}])
        self.assertEqual(rule["matches"], [{"path": {"type": "PathPrefix", "value": "/"}}])

    def test_egress_has_a_rule_for_each_destination_in_use(self):
        dns, database = ([53, 53], None), ([5432], None)
        self.assertEqual(self.egress(), [dns, database])
        self.assertEqual(self.egress(base=SQLITE), [dns])
        url = 'index.url="postgres://u:p%40@db:6543/k?a=b:1/c"'
        self.assertEqual(self.egress(url, base=WORKING[2:]), [dns, ([6543], None)])
        self.assertEqual(self.egress('blobs.url="s3://b"'), [dns, database, ([443], None)])
        minio = ('blobs={"url":"s3://b","endpoint":"http://minio:9000"}',)
        self.assertEqual(self.egress(*minio), [dns, database, ([9000], None)])
        search = {"meaning": "endpoint", "embeddings": {"url": "http://ollama:11434/v1", "model": "m", "dimensions": 3}}
        self.assertEqual(self.egress(f"search={json.dumps(search)}"), [dns, database, ([11434], None)])
        issuers = [{"issuer": "https://a.example", "audience": "k"}, {"issuer": "b", "audience": "k", "key_file": "/k"}]
        self.assertEqual(self.egress(f'config.auth={{"issuers":{json.dumps(issuers)}}}'), [dns, database, ([443], None)])
        # Sign-ins to the console need the issuer itself.
        issuers[1] |= {"issuer": "https://b.example:8443/realm", "console": {"client_id": "k"}}
        self.assertEqual(self.egress(f'config.auth={{"issuers":{json.dumps(issuers)}}}'), [dns, database, ([443, 8443], None)])
        telemetry = 'config.telemetry={"otlp_endpoint":"http://collector:4318"}'
        self.assertEqual(self.egress(telemetry), [dns, database, ([4318], None)])
        # The migration reaches only the database.
        self.assertEqual(self.egress(*minio, telemetry, name="tests-keepsake-migration"), [dns, database])

    def test_egress_is_restricted_to_the_peers_of_a_destination(self):
        peers = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
        rules = self.egress(
            f'networkPolicy.egress.database={{"to":{json.dumps(peers)},"ports":[6432]}}',
            f'networkPolicy.egress.dns={{"to":{json.dumps(peers)}}}',
            f'networkPolicy.egress.blobs={{"to":{json.dumps(peers)}}}',
            'blobs.url="s3://b"',
        )
        self.assertEqual(rules, [([53, 53], peers), ([6432], peers), ([443], peers)])


class Examples(unittest.TestCase):
    def test_there_is_one_for_each_way_of_installing(self):
        names = {files[-1].stem for files in SETS if files[-1].parent == support.EXAMPLES}
        ways = {"single-node", "postgres", "postgres-s3-irsa", "minio", "everything", "sync-sidecar"}
        self.assertEqual(names, ways)

    def test_commands_create_what_the_values_name(self):
        """Secrets and ConfigMaps outside of the release."""
        for files in SETS:
            if files[-1].parent != support.EXAMPLES:
                continue
            text = "".join(file.read_text() for file in files).replace("\\\n#", "")
            made = set(re.findall(r"^#   kubectl -n memory create (secret|configmap) (?:[-a-z]+ )??([-a-z]+) +--", text, re.MULTILINE))
            everything = objects(render(*given(files)))
            own = {(it["kind"].lower(), it["metadata"]["name"]) for it in everything}
            wanted = set()
            for _, spec in pods(render(*given(files))):
                wanted |= {("secret", it["name"]) for it in spec.get("imagePullSecrets", [])}
                for container in [*spec["containers"], *spec.get("initContainers", [])]:
                    for variable in container.get("env", []):
                        if "valueFrom" in variable:
                            wanted.add(("secret", variable["valueFrom"]["secretKeyRef"]["name"]))
                    for source in container.get("envFrom", []):
                        wanted.add(("configmap", source["configMapRef"]["name"]))
            self.assertEqual(wanted - own, made - own, files[-1].stem)


class WrongValues(unittest.TestCase):
    def test_base_values_of_the_refused_cases_are_valid(self):
        for values in (WORKING, SQLITE):
            render(*values)
            render(*values, "--set", "blobs.url=index:")
            render(*values, "--set", "blobs.url=s3://b/prefix,blobs.pathStyle=true")

    def test_invalid_values_are_refused_with_a_reason(self):
        rendered = at_once(
            lambda it: helm("template", support.RELEASE, str(CHART), *it[0], "--set", it[1]), REFUSED
        )
        for (_, values, expected), (code, _, said) in zip(REFUSED, rendered):
            with self.subTest(values):
                self.assertNotEqual(code, 0)
                # Releases of Helm differ in how they write of the schema.
                plain = said.replace("'", "").replace(" is not allowed", " not allowed")
                self.assertTrue(expected in plain or expected in plain.replace("/", "."), said)

    def test_release_whose_name_no_service_can_have_needs_another_name(self):
        for name in ("2024", "a.b"):
            code, _, said = helm("template", name, str(CHART), *WORKING)
            self.assertNotEqual(code, 0)
            self.assertIn("set fullnameOverride", said)
            self.assertEqual(helm("template", name, str(CHART), *WORKING, "--set", "fullnameOverride=k")[0], 0)

    def test_every_object_of_the_schema_is_closed(self):
        schema = yaml.safe_load((CHART / "values.schema.json").read_text())

        def walk(node, at):
            if isinstance(node, dict):
                if "properties" in node:
                    self.assertIs(node.get("additionalProperties"), False, at)
                for name, child in node.items():
                    walk(child, f"{at}/{name}")

        walk(schema, "")

    def test_schema_refuses_a_wrong_type_of_every_value(self):
        wrong = {path: {} if isinstance(value, list) else [] for path, value in VALUES if not is_section(value)}
        said = self.refusal_of(wrong)
        for path in wrong:
            self.assertRegex(said, rf"{'.'.join(path)}\W")

    def test_null_of_a_section_or_of_a_needed_value_is_refused(self):
        # An operator may set these to null: Keepsake's own settings, and parts of Kubernetes objects.
        free = {"config", "resources", "podSecurityContext", "securityContext", "capabilities", "seccompProfile"}
        needed = [path for path, value in VALUES if value not in ("", [], {}) and not free & set(path[:-1])]
        for depth in (1, 2, 3):
            paths = [path for path in needed if len(path) == depth and path[-1] != "grafana_dashboard"]
            said = self.refusal_of(dict.fromkeys(paths))
            for path in paths:
                self.assertRegex(said, rf"{'.'.join(path[:-1])}\b.*\b{path[-1]}\b")

    def test_null_of_an_empty_value_changes_nothing(self):
        keep = {("index", "url"), ("operator", "token")}
        empty = [path for path, value in VALUES if value in ("", [], {}) and path not in keep]
        self.assertEqual(render(*WORKING, *jsons(dict.fromkeys(empty))), render(*WORKING))

    def refusal_of(self, values):
        code, _, said = helm("template", support.RELEASE, str(CHART), *jsons(values))
        self.assertIn("values don't meet the specifications of the schema", said)
        return said.replace("/", ".")


def jsons(values):
    """The arguments that set values, each given by its path."""
    return [it for path, value in values.items() for it in ("--set-json", f"{'.'.join(path)}={json.dumps(value)}")]


def paths_of(values, above=()):
    """The path of each section and each value with it."""
    for name, value in values.items():
        yield (*above, name), value
        if is_section(value):
            yield from paths_of(value, (*above, name))


def is_section(value):
    return isinstance(value, dict) and value != {}


VALUES = list(paths_of(yaml.safe_load((CHART / "values.yaml").read_text())))


def is_of_the_chart(it):
    """Whether it is not one of extraObjects."""
    return "helm.sh/chart" in it["metadata"].get("labels", {})


def hook_of(it):
    return it["metadata"].get("annotations", {}).get("helm.sh/hook", "")


if __name__ == "__main__":
    unittest.main()
