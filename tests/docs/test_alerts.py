"""The alerts, the dashboard and the scaling of deploy/: checked by promtool, by a schema, and against the runbook."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.docs.pages import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOK = ROOT / "docs" / "howto" / "runbook.md"
METRICS = ROOT / "docs" / "reference" / "metrics.md"


def _promtool(*arguments: str, folder: Path = PROMETHEUS) -> str:
    program = shutil.which("promtool")
    if program is None:
        reason = "there is no promtool: apt-get install prometheus"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    done = subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_promtool_accepts_the_rules_and_the_configuration(tmp_path: Path) -> None:
    assert f"SUCCESS: {len(_alerts())} rules found" in _promtool("check", "rules", "alerts.yml")
    _promtool("check", "config", "prometheus.yml")


def test_every_alert_fires() -> None:
    assert "SUCCESS" in _promtool("test", "rules", "alerts_test.yml")
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    fired = {check["alertname"] for check in checks if check["exp_alerts"]}
    silent = {check["alertname"] for check in checks if not check["exp_alerts"]}
    assert fired == silent == {alert["alert"] for alert in _alerts()}


def test_the_runbook_has_one_section_per_alert() -> None:
    sections = re.findall(r"^## (Bide\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    names = [alert["alert"] for alert in _alerts()]
    assert sections == names
    for alert in _alerts():
        assert alert["annotations"]["runbook"] == f"docs/howto/runbook.md#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in ("info", "warning", "critical")


def test_alerts_panels_and_scaling_use_metrics_that_exist() -> None:
    described = set(re.findall(r"^\| `(bide_\w+)`", METRICS.read_text(), flags=re.MULTILINE))
    texts = {
        "alerts": json.dumps(_alerts()),
        "dashboard": (ROOT / "deploy" / "grafana" / "bide.json").read_text(),
        "scaling": (ROOT / "deploy" / "keda.yaml").read_text(),
        "runbook": RUNBOOK.read_text(),
    }
    for name, text in texts.items():
        used = set(re.findall(r"\bbide_[a-z_]+\b", text))
        known = {metric.removesuffix("_bucket").removesuffix("_count") for metric in used}
        assert known - described == set(), name
        assert known, name


# What KEDA 2 accepts, as far as the example uses it: https://keda.sh/docs/latest/reference/scaledobject-spec/
_COUNT = {"type": "integer", "minimum": 0}
_POLICY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "value", "periodSeconds"],
    "properties": {
        "type": {"enum": ["Percent", "Pods"]},
        "value": {"type": "integer", "minimum": 1},
        "periodSeconds": {"type": "integer", "minimum": 1, "maximum": 1800},
    },
}
_RULES = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "stabilizationWindowSeconds": {"type": "integer", "minimum": 0, "maximum": 3600},
        "selectPolicy": {"enum": ["Max", "Min", "Disabled"]},
        "policies": {"type": "array", "items": _POLICY, "minItems": 1},
    },
}
_BEHAVIOR = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"scaleDown": _RULES, "scaleUp": _RULES},
}
_HPA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "behavior": _BEHAVIOR},
}
SCALED_OBJECT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}},
        },
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["scaleTargetRef", "triggers"],
            "properties": {
                "scaleTargetRef": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name"],
                    "properties": {
                        name: {"type": "string"}
                        for name in ("apiVersion", "kind", "name", "envSourceContainerName")
                    },
                },
                "minReplicaCount": _COUNT,
                "maxReplicaCount": _COUNT,
                "idleReplicaCount": _COUNT,
                "pollingInterval": _COUNT,
                "cooldownPeriod": _COUNT,
                "fallback": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["failureThreshold", "replicas"],
                    "properties": {"failureThreshold": _COUNT, "replicas": _COUNT},
                },
                "advanced": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "restoreToOriginalReplicaCount": {"type": "boolean"},
                        "horizontalPodAutoscalerConfig": _HPA,
                    },
                },
                "triggers": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["type", "metadata"],
                        "properties": {
                            "type": {"const": "prometheus"},
                            "name": {"type": "string"},
                            "metricType": {"enum": ["AverageValue", "Value"]},
                            "authenticationRef": {"type": "object", "required": ["name"]},
                            "metadata": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["serverAddress", "query", "threshold"],
                                "properties": {  # all of them are text
                                    name: {"type": "string"}
                                    for name in (
                                        *("serverAddress", "query", "threshold", "activationThreshold"),
                                        *("ignoreNullValues", "namespace", "timeout", "unsafeSsl"),
                                    )
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def test_keda_accepts_the_example() -> None:
    found = yaml.safe_load((ROOT / "deploy" / "keda.yaml").read_text())
    jsonschema.validate(found, SCALED_OBJECT)
    spec = found["spec"]
    # The threshold is what one worker runs at once, so it is a whole number of handler processes.
    assert int(spec["triggers"][0]["metadata"]["threshold"]) > 0
    assert spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**found, "spec": {**spec, "minReplicas": 1}}, SCALED_OBJECT)
