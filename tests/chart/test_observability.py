"""Alert rules and dashboard: well-formed, documented, on metrics that exist."""

import json
import os
import pathlib
import re
import tempfile
import unittest

import yaml

import support
from support import CHART, LABELS_OF_SCRAPES, METRICS, ROOT, objects, render

SUFFIXES = ("", "_bucket", "_count", "_sum")


class Rules(unittest.TestCase):
    def test_promtool_accepts_the_alerts(self):
        code, said = support.run(support.tool("KEEPSAKE_TEST_PROMTOOL"), "check", "rules", CHART / "files" / "alerts.yaml")
        self.assertEqual(code, 0, said)

    def test_alerts_fire_at_the_right_time(self):
        folder = pathlib.Path(__file__).parent
        code, said = support.run(support.tool("KEEPSAKE_TEST_PROMTOOL"), "test", "rules", folder / "alerts.yaml")
        self.assertEqual(code, 0, said)

    def test_every_alert_fires_in_a_test(self):
        names = {rule["alert"] for rule in alerts()}
        tests = yaml.safe_load((pathlib.Path(__file__).parent / "alerts.yaml").read_text())["tests"]
        checks = [check for test in tests for check in test["promql_expr_test"]]
        labels = " ".join(sample["labels"] for check in checks for sample in check["exp_samples"])
        self.assertEqual(set(re.findall(r'alertname="(\w+)"', labels)), names)

    def test_every_alert_is_documented(self):
        text = (ROOT / "docs" / "operations.md").read_text()
        documented = re.findall(r"^### (Keepsake[A-Za-z]+)$", text, re.MULTILINE)
        self.assertEqual(documented, [rule["alert"] for rule in alerts()])

    def test_every_alert_links_to_its_runbook(self):
        for rule in alerts():
            self.assertEqual(rule["annotations"]["runbook_url"], f"docs/operations.md#{rule['alert'].lower()}")
        for files in support.SETS:
            prefix = support.merged(files).get("prometheusRule", {}).get("runbookPrefix", "")
            for it in objects(render(*support.given(files))):
                for group in it["spec"]["groups"] if it["kind"] == "PrometheusRule" else []:
                    for rule in group["rules"]:
                        link = f"{prefix}docs/operations.md#{rule['alert'].lower()}"
                        self.assertEqual(rule["annotations"]["runbook_url"], link)

    def test_every_alert_is_one_of_a_namespace(self):
        for rule in alerts():
            query = re.sub(r'"[^"]*"', "", rule["expr"]).split("unless on ()")[0]
            for grouping in re.findall(r"\b(?:sum|max|min|count|avg)\b(?: by \(([^)]*)\))?", query):
                self.assertIn("namespace", grouping.split(", "), rule["alert"])

    def test_chart_contains_the_rules_unchanged(self):
        manifests = render("--values", str(support.VALUES / "every-value.yaml"))
        rule = next(it for it in objects(manifests) if it["kind"] == "PrometheusRule")
        self.assertEqual(rule["spec"], yaml.safe_load((CHART / "files" / "alerts.yaml").read_text()))


class Queries(unittest.TestCase):
    def test_promtool_accepts_every_query(self):
        rules = [
            {"record": f"query:{number}", "expr": it["query"]} for number, it in enumerate(support.queries())
        ]
        self.assertGreater(len(rules), 30)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}, file)
            file.flush()
            code, said = support.run(support.tool("KEEPSAKE_TEST_PROMTOOL"), "check", "rules", file.name)
        self.assertEqual(code, 0, said)

    def test_queries_use_existing_metrics(self):
        for it in support.queries():
            for name in re.findall(r"\bkeepsake_[a-z_]+", it["query"]):
                known = {metric + suffix for metric in METRICS for suffix in SUFFIXES}
                self.assertIn(name, known, it)

    def test_queries_use_existing_labels(self):
        for it in support.queries():
            metrics = [base_of(name) for name in re.findall(r"\bkeepsake_[a-z_]+", it["query"])]
            known = LABELS_OF_SCRAPES.union(*(METRICS[metric] for metric in metrics))
            grouped = re.findall(r"\bby \(([^)]*)\)", it["query"])
            used = {label.strip() for labels in grouped for label in labels.split(",")}
            used |= set(re.findall(r"([a-z_]+)\s*(?:=~|!=|!~|=)\s*\"", it["query"]))
            self.assertLessEqual(used, known, it)

    def test_every_metric_is_shown(self):
        text = " ".join(it["query"] for it in support.queries() if it["in"] == "dashboard")
        for metric in METRICS:
            self.assertIn(metric, text)


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())

    def test_panels_have_unique_ids_and_positions(self):
        panels = self.dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in panels)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        self.assertEqual(len(cells), len(set(cells)))
        self.assertLess(max(x for x, _ in cells), 24)

    def test_has_stat_panels_of_health_and_totals(self):
        stats = " ".join(
            target["expr"] for panel in self.dashboard["panels"] if panel["type"] == "stat" for target in panel["targets"]
        )
        for metric in METRICS:
            if metric.startswith("keepsake_stored_"):
                self.assertIn(metric, stats)
        for metric in ("keepsake_http_requests_total", "keepsake_index_pool_waiting", "keepsake_process_start_time_seconds"):
            self.assertIn(metric, stats)

    def test_chart_contains_it_unchanged(self):
        manifests = render("--values", str(support.VALUES / "every-value.yaml"))
        carried = next(it for it in objects(manifests) if it["metadata"]["name"].endswith("-dashboard"))
        self.assertEqual(json.loads(carried["data"]["keepsake.json"]), self.dashboard)


def alerts():
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def base_of(name):
    """A metric's name without the suffix of a histogram's series."""
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.removesuffix(suffix) in METRICS), name)


if __name__ == "__main__":
    unittest.main()
