"""Checks the Helm chart: helm's own lint, Kubernetes' schemas, KEDA's, and what every pod of ours must hold.

Part of `make lint`. Without helm (`VOC_HELM`, on PATH, or in `.helm/`, where `make helm` puts it) it says so, and
passes. No API server is asked: what a cluster does with the chart is not shown by this.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "deploy/helm/voc2tflite"
KUBERNETES: Final = ("1.27", "1.35")

BUCKETS: Final = "store.url=s3://bucket/out,photos.url=s3://bucket/photos"
GOOD: Final = {
    "buckets": BUCKETS,
    "claims": "store.claim=store,photos.claim=photos",
    "own Redis, a GPU, no KEDA": f"{BUCKETS},redis.inside=false,redis.host=redis.example,redis.tls=true,"
    "redis.secret=users,trainer.gpus=1,keda.enabled=false,bucket.secret=keys,networkPolicy.enabled=false",
    "placed": f"{BUCKETS},redis.storage=1Gi,nodeSelector.disk=fast,image.pullSecrets[0].name=pull,"
    "image.registry=registry.example/,bucket.env.AWS_REGION=eu-west-1,env.VOC_LEASE_S=30,"
    "tolerations[0].key=spot,tolerations[0].operator=Exists",
}
# Values that are refused, and what the error names.
BAD: Final = {
    "": "set store.url",
    "store.url=s3://b/o,store.claim=x,photos.claim=p": "not both",
    "store.url=/out,photos.claim=p": "/store/url",
    "store.url=s3://key:secret@b/o,photos.claim=p": "/store/url",
    f"{BUCKETS},workers.max=3": "workers",
    f"{BUCKETS},bucket.env.AWS_SECRET_ACCESS_KEY=x": "/bucket/env",
    f"{BUCKETS},redis.inside=false": "set redis.host",
    f"{BUCKETS},keda.worker.max=0": "/keda/worker/max",
}

# The part of KEDA's ScaledObject (keda.sh/v1alpha1, of 2.9 and newer) that the chart uses.
_NUMBER: Final = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}
SCALED_OBJECT: Final = {
    "type": "object",
    "required": ["scaleTargetRef", "triggers"],
    "additionalProperties": False,
    "properties": {
        "scaleTargetRef": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        "pollingInterval": {"type": "integer", "minimum": 1},
        "cooldownPeriod": {"type": "integer", "minimum": 0},
        "minReplicaCount": {"type": "integer", "minimum": 0},
        "maxReplicaCount": {"type": "integer", "minimum": 1},
        "advanced": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"horizontalPodAutoscalerConfig": {"type": "object"}},
        },
        "triggers": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["type", "metadata"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "metrics-api"},
                    "metricType": {"enum": ["AverageValue", "Value"]},
                    "metadata": {
                        "type": "object",
                        "required": ["url", "valueLocation", "targetValue"],
                        "additionalProperties": False,
                        "properties": {
                            "url": {"type": "string", "pattern": "^http://[a-z0-9.-]+:[0-9]+/[a-z]+$"},
                            "valueLocation": {"type": "string"},
                            "targetValue": _NUMBER,
                            "activationTargetValue": _NUMBER,
                        },
                    },
                },
            },
        },
    },
}

# What the `restricted` pod security standard asks for, and a root that nobody writes to.
_SECCOMP: Final = {"type": "RuntimeDefault"}
_BOUND: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_WITH_PODS: Final = ("Deployment", "StatefulSet")


def find_helm() -> str | None:
    """The program, or None where there is none."""
    own = ROOT / ".helm/helm"
    return os.environ.get("VOC_HELM") or shutil.which("helm") or (str(own) if own.is_file() else None)


def render(helm: str, values: str, *, name: str = "cells") -> list[dict[str, Any]]:
    """The chart's objects with `values`, as `--set` takes them."""
    done = _run(helm, "template", name, values)
    if done.returncode:
        raise SystemExit(f"helm template with {values}: {done.stderr}")
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def _run(helm: str, command: str, name: str, values: str) -> "subprocess.CompletedProcess[str]":
    named = [name] if command == "template" else []
    settings = ["--set", values] if values else []
    return subprocess.run([helm, command, *named, CHART, *settings], capture_output=True, text=True, check=False)


def faults(objects: list[dict[str, Any]]) -> Iterator[str]:
    """What is wrong with the rendered objects, one line each."""
    for found in objects:
        name = f"{found['kind']} {found['metadata']['name']}"
        if found["kind"] == "ScaledObject":
            errors = jsonschema.Draft202012Validator(SCALED_OBJECT).iter_errors(found["spec"])
            yield from (f"{name}: {error.message}" for error in errors)
            continue
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(found, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{name}: Kubernetes {version}: {error.message}"
        if "template" in found.get("spec", {}):
            yield from (f"{name}: {fault}" for fault in _pod_faults(found["spec"]["template"]))
    yield from _dangling(objects)


def _pod_faults(template: dict[str, Any]) -> Iterator[str]:
    """What the `restricted` pod security standard, our own grace periods and memory limits ask for."""
    spec = template["spec"]
    pod = spec["securityContext"]
    if not pod.get("runAsNonRoot") or not pod.get("runAsUser") or pod.get("seccompProfile") != _SECCOMP:
        yield "the pod may be root, or has no seccomp profile"
    if {spec.get("automountServiceAccountToken"), spec.get("enableServiceLinks")} != {False}:
        yield "the pod gets a token of the cluster, or the environment of other services"
    for container in spec["containers"]:
        own = container["securityContext"]
        if own != _BOUND:
            yield f"{container['name']}: capabilities, a root that is written to, or more rights later"
        if "memory" not in container["resources"]["limits"] or "readinessProbe" not in container:
            yield f"{container['name']}: no memory limit, or no probe"
        environment = {entry["name"]: entry["value"] for entry in container.get("env", [])}
        if float(environment.get("VOC_SOFT_STOP_S", 0)) >= spec["terminationGracePeriodSeconds"]:
            yield f"{container['name']}: killed before its soft stop is over"


def _dangling(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Selectors that select no pod of ours, and targets that are not there."""
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] in _WITH_PODS]
    names = {each["metadata"]["name"] for each in objects if each["kind"] in _WITH_PODS}
    for each in objects:
        name, spec = f"{each['kind']} {each['metadata']['name']}", each.get("spec", {})
        wanted = spec.get("podSelector", spec.get("selector", {}))
        wanted = wanted.get("matchLabels", {} if "matchExpressions" in wanted else wanted)
        if not any(wanted.items() <= labels.items() for labels in pods):
            yield f"{name}: selects no pod: {wanted}"
        target = spec.get("scaleTargetRef", {}).get("name")
        if target is not None and target not in names:
            yield f"{name}: there is no {target}"


def main() -> int:
    """Check the chart with all values above; 1 if anything is wrong."""
    helm = find_helm()
    if helm is None:
        print("the Helm chart was not checked: there is no helm (`make helm` fetches it where there is npm)")
        return 0
    wrong = []
    for title, values in GOOD.items():
        linted = _run(helm, "lint", "", values)
        wrong += [f"{title}: helm lint: {linted.stdout}"] if linted.returncode else []
        wrong += [f"{title}: {fault}" for fault in faults(render(helm, values))]
    for values, expected in BAD.items():
        refused = _run(helm, "template", "cells", values)
        if not refused.returncode or expected not in refused.stderr:
            wrong.append(f"values {values!r}: expected an error that names {expected!r}, found: {refused.stderr!r}")
    print("\n".join(wrong) or f"the Helm chart is in order: {len(GOOD)} sets of values, {len(BAD)} that are refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
