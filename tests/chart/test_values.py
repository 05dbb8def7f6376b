"""The chart with a table of value sets, and with invalid values."""

import unittest

import kubernetes_validate
import yaml

import support
from support import CHART, VALUES, at_once, helm, objects, pods, render

SETS = sorted(VALUES.glob("*.yaml"))
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
    (WORKING, "index.kind=mysql", "index.kind"),
    (WORKING, "index.url=mysql://u:p@db/k", "index.url"),
    (WORKING, "operator.token=short", "operator.token"),
    (WORKING, "secrets.masterKey=short", "secrets.masterKey"),
    (WORKING, "service.type=ExternalName", "service.type"),
    (WORKING, "gateway.resources.limits.memory=plenty", "gateway.resources.limits.memory"),
    (WORKING, "blobs.url=file:///var/lib/keepsake/blobs", "blobs.url"),
    (WORKING, "index.url=", "set index.url, or index.existingSecret"),
    (WORKING, "index.url=sqlite:///var/lib/keepsake/index.db", "needs index.kind sqlite"),
    (WORKING, "index.existingSecret=other", "index.url and index.existingSecret are both set"),
    (WORKING, "blobs.url=s3://b,blobs.accessKeyId=alone", "belong together"),
    (WORKING, "blobs.endpoint=http://minio:9000", "blobs.endpoint is for an object store"),
    (WORKING, "blobs.url=index:,blobs.existingSecret=other", "blobs.existingSecret is for an object store"),
    (WORKING, "operator.existingSecret=other", "operator.token and operator.existingSecret are both set"),
    (WORKING, "secrets.previousMasterKey=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "previousMasterKey has a meaning"),
    (WORKING, "telemetry.otlpHeaders=a=b", "beside config.telemetry.otlp_endpoint alone"),
    (WORKING, "config.telemetry.sample_ratio=2", "config.telemetry.sample_ratio"),
    (WORKING, "gateway.port=8081", "operator.port and gateway.port must differ"),
    (WORKING, "gateway.autoscaling.maxReplicas=1", "below minReplicas"),
    (WORKING, "worker.enabled=true,operator.enabled=false", "worker.enabled needs operator.enabled"),
    (WORKING, "serviceMonitor.enabled=true", "needs networkPolicy.operatorFrom"),
    (WORKING, "ingress.enabled=true", "needs ingress.hosts"),
    (WORKING, "ingress.enabled=true,ingress.hosts={a.example}", "ingress.tls needs a secretName"),
    (POSTGRES, "operator.token=", "set operator.token"),
    (SQLITE, "gateway.replicas=2", "set gateway.replicas to 1"),
    (SQLITE, "gateway.autoscaling.enabled=true", "set gateway.autoscaling.enabled to false"),
    (SQLITE, "worker.enabled=true", "set worker.enabled to false"),
    (SQLITE, "index.existingSecret=other", "with index.kind postgres alone"),
    (SQLITE, "index.url=sqlite:///tmp/index.db", "must be below sqlite:///var/lib/keepsake/"),
]


class ValueSets(unittest.TestCase):
    def each(self):
        self.assertGreaterEqual(len(SETS), 7)
        rendered = at_once(lambda path: render("--values", str(path)), SETS)
        yield from zip(SETS, rendered)

    def test_lints_strictly(self):
        linted = at_once(lambda path: helm("lint", "--strict", str(CHART), "--values", str(path)), SETS)
        for path, (code, said, errors) in zip(SETS, linted):
            with self.subTest(path.stem):
                self.assertEqual(code, 0, said + errors)
                self.assertNotIn("[WARNING]", said)

    def test_is_valid_for_kubernetes(self):
        for path, manifests in self.each():
            for it in objects(manifests):
                if it["kind"] in CUSTOM:
                    continue
                for version in ("1.30", "1.37"):
                    with self.subTest(path.stem, kind=it["kind"], version=version):
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
                for container in pod["containers"]:
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
        account = spec.get("serviceAccountName")
        if account is not None:
            self.assertIn(("ServiceAccount", account), named, label)
        for container in spec["containers"]:
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"].startswith(("tests-", "agent-memory")):
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
        for path, manifests in self.each():
            values = yaml.safe_load(path.read_text())
            server = values.get("config", {}).get("server", {})
            deadline = server.get("shutdown_deadline_seconds", 30)
            drain = server.get("drain_seconds", 5)
            for it in objects(manifests):
                if it["kind"] == "Deployment":
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
                if it["kind"] == "Ingress":
                    self.assertNotIn("operator", yaml.safe_dump(it["spec"]))

    def test_platforms_own_values_reach_the_objects(self):
        manifests = objects(render("--values", str(VALUES / "everything.yaml")))
        named = {(it["kind"], it["metadata"]["name"]): it for it in manifests}
        gateway = named["Deployment", "agent-memory-gateway"]["spec"]
        self.assertEqual(gateway["strategy"]["rollingUpdate"], {"maxUnavailable": 1, "maxSurge": 2})
        pod = gateway["template"]["spec"]
        self.assertEqual([it["name"] for it in pod["containers"]], ["keepsake", "more"])
        self.assertEqual([it["name"] for it in pod["initContainers"]], ["more"])
        probe = pod["containers"][0]["readinessProbe"]
        self.assertEqual((probe["periodSeconds"], probe["failureThreshold"]), (3, 2))
        for owner in ("gateway", "worker"):
            container = named["Deployment", f"agent-memory-{owner}"]["spec"]["template"]["spec"]["containers"][0]
            self.assertEqual(container["envFrom"], [{"configMapRef": {"name": "proxies", "optional": True}}])
            scaler = named["HorizontalPodAutoscaler", f"agent-memory-{owner}"]["spec"]
            self.assertEqual(scaler["scaleTargetRef"]["name"], f"agent-memory-{owner}")
        self.assertNotIn("replicas", named["Deployment", "agent-memory-worker"]["spec"])
        job = named["Job", "agent-memory-migration"]
        self.assertEqual(job["metadata"]["labels"]["team"], "platform")
        of_pod = job["spec"]["template"]["metadata"]
        self.assertEqual(of_pod["labels"]["team"], "platform")
        self.assertEqual(of_pod["annotations"], {"sidecar.istio.io/inject": "false"})
        self.assertEqual(named["ConfigMap", "agent-memory-more"]["data"], {"release": "tests"})
        [route] = named["HTTPRoute", "agent-memory"]["spec"]["rules"]
        self.assertEqual(route["backendRefs"], [{"name": "agent-memory", "port": 8443}])

    def test_values_are_not_needed_to_lint(self):
        code, said, errors = helm("lint", str(CHART))
        self.assertEqual(code, 0, said + errors)

    def test_split_roles_render_a_separate_worker(self):
        for path, manifests in self.each():
            deployments = [it for it in objects(manifests) if it["kind"] == "Deployment"]
            roles = {it["spec"]["template"]["spec"]["containers"][0]["args"][2] for it in deployments}
            split = yaml.safe_load(path.read_text()).get("worker", {}).get("enabled", False)
            self.assertEqual(roles, {"gateway", "worker"} if split else {"all"})

    def test_migration_runs_before_everything_except_its_dependencies(self):
        for path, manifests in self.each():
            hooks = [it for it in objects(manifests) if "pre-install" in hook_of(it)]
            if path.stem == "minimal":
                self.assertEqual(hooks, [])
                continue
            weights = {it["kind"]: int(it["metadata"]["annotations"]["helm.sh/hook-weight"]) for it in hooks}
            job = weights.pop("Job")
            self.assertTrue(all(weight < job for weight in weights.values()), weights)
            self.assertTrue(all("pre-upgrade" in hook_of(it) for it in hooks))


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

    def test_every_object_of_the_schema_is_closed(self):
        schema = yaml.safe_load((CHART / "values.schema.json").read_text())

        def walk(node, at):
            if isinstance(node, dict):
                if "properties" in node:
                    self.assertIs(node.get("additionalProperties"), False, at)
                for name, child in node.items():
                    walk(child, f"{at}/{name}")

        walk(schema, "")

    def test_schema_contains_every_value(self):
        schema = yaml.safe_load((CHART / "values.schema.json").read_text())
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        self.assertEqual(set(schema["properties"]) - {"global"}, set(values))


def hook_of(it):
    return it["metadata"].get("annotations", {}).get("helm.sh/hook", "")


if __name__ == "__main__":
    unittest.main()
