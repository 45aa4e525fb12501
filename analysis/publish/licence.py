"""Under which licence a run may be published: what its environment's data ask for."""

from __future__ import annotations

from occupancy.record.errors import InputError

LICENCES = {
    "apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "mit": "https://opensource.org/license/mit",
    "cc0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "cc-by-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "cc-by-sa-4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
    "cc-by-nc-4.0": "https://creativecommons.org/licenses/by-nc/4.0/",
    "cc-by-nc-sa-4.0": "https://creativecommons.org/licenses/by-nc-sa/4.0/",
    "odc-by": "https://opendatacommons.org/licenses/by/1-0/",
}
"""Licences of data by the names of the Hugging Face hub, with their texts."""
SOURCES = {
    "hotpotqa": ("HotpotQA's questions and Wikipedia's passages are under CC BY-SA 4.0", ("cc-by-sa-4.0",)),
    "alfworld": ("ALFWorld's games are under the MIT licence; keep its notice", tuple(LICENCES)),
}
"""Environment -> what its texts are under, and the licences that this allows."""


def notes_for(licence: str, environment: str, policies: list[str]) -> list[str]:
    """What to know about a run's licence; InputError where its environment forbids it."""
    if licence not in LICENCES:
        raise InputError(f"--license {licence}: expected one of {', '.join(LICENCES)}")
    name = environment.split(maxsplit=1)[0].lower() if environment.split() else ""
    told, allowed = SOURCES.get(
        name, (f"the texts of {environment or 'the environment'} are in the data: check their licence", ())
    )
    if allowed and licence not in allowed:
        raise InputError(f"--license {licence}: {told}, so expected --license {allowed[0]}")
    models = [policy for policy in policies if policy.startswith("openai:")]
    terms = [f"the terms of {model}'s provider say what its outputs may be used for" for model in models]
    return [told, *terms]
