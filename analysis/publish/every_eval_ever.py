"""An evaluation as a record of Every Eval Ever, the shared schema of evaluation results (version 0.3)."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any
from uuid import UUID

from agentloop.run.evaluate import summarise_evaluation
from occupancy.runs import Run

VERSION = "0.3.0"
_OWN = ("vllm:", "transformers:")
"""Policies whose weights were here."""


def place(made: dict[str, Any]) -> str:
    """Path of a record in a collection of records: data/benchmark/developer/model/id.json."""
    words = [re.sub(r"[^\w.-]+", "-", word) for word in made["evaluation_id"].split("/")[:3]]
    digest = blake2b(made["evaluation_id"].encode(), digest_size=16).digest()
    return "/".join(["data", *words, f"{UUID(bytes=digest, version=4)}.json"])


def _model(policy: str, organization: str) -> tuple[str, str]:
    """Developer and name of the model that a policy names: openai:ORG/MODEL,… or a folder of weights."""
    kind, colon, named = policy.partition(",")[0].partition("@")[0].partition(":")
    *before, model = (named if colon else kind).rstrip("/").split("/")
    developer = before[0] if len(before) == 1 and before[0] else organization.replace("/", "-")
    return developer, model or "unknown"


def record(run: Run, *, organization: str, now: float, version: str) -> dict[str, Any]:
    """The record of a run of `fewsteps evaluate`, made `now` (seconds since 1970) by this `version`."""
    found = summarise_evaluation(run)
    score, policy, environment = found["success"], found["policy"], found["environment"]
    uncertainty: dict[str, Any] = {"num_samples": score["n"]}
    if score["cluster_se"] is not None:
        uncertainty["standard_error"] = {"value": score["cluster_se"], "method": "clustered by task"}
    if score["low"] is not None:
        uncertainty["confidence_interval"] = {
            "lower": score["low"],
            "upper": score["high"],
            "confidence_level": 0.95,
            "method": score["interval"],
        }
    details = {name: str(run.info.get(name, "")) for name in ("tasks", "attempts", "seed")} | {
        "T_max": str(run.recipe.T_max),
        "success_at": str(run.recipe.success_at),
        "status": str(found["status"]),
    }
    name = (environment.split() or ["environment"])[0].replace("/", "-")
    developer, model = _model(policy, organization)
    return {
        "schema_version": VERSION,
        "evaluation_id": f"{name}/{developer}/{model}/{int(now)}",
        "retrieved_timestamp": str(int(now)),
        "source_metadata": {
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "first_party",
        },
        "eval_library": {"name": "fewsteps", "version": version},
        "model_info": {
            "name": policy,
            "id": f"{developer}/{model}",
            "developer": developer,
            "additional_details": {
                "deployment_type": "self_deployed" if policy.startswith(_OWN) else "unknown",
                "model_availability": "open_weights" if policy.startswith(_OWN) else "unknown",
            },
        },
        "evaluation_results": [
            {
                "evaluation_name": f"{environment}: success rate",
                "source_data": {"dataset_name": environment, "source_type": "other"},
                "metric_config": {
                    "evaluation_description": "mean over tasks of the fraction of attempts with a reward of "
                    "at least success_at",
                    "lower_is_better": False,
                    "score_type": "continuous",
                    "min_score": 0,
                    "max_score": 1,
                },
                "score_details": {"score": score["mean"], "details": details, "uncertainty": uncertainty},
            }
        ],
    }
