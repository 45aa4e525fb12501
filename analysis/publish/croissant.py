"""Croissant metadata of a published run, with the responsible-AI fields: what machines read of a data set.

Format: mlcommons.org/croissant/1.0 and mlcommons.org/croissant/RAI/1.0; the package mlcroissant validates it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.publish.conversations import SCALARS
from analysis.publish.licence import LICENCES

_TERMS = (
    *("citeAs", "column", "extract", "field", "fileObject", "fileProperty", "fileSet", "format", "includes"),
    *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
"""Names of Croissant's own vocabulary."""
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{term: f"cr:{term}" for term in _TERMS},
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
_TYPES = {"str": "sc:Text", "int": "sc:Integer", "float": "sc:Float", "bool": "sc:Boolean"}


def croissant(
    about: Mapping[str, Any],
    *,
    file: str,
    sha256: str,
    size: int,
    record: str = "episodes",
    columns: Mapping[str, str] = SCALARS,
    key: Sequence[str] = ("episode_id",),
) -> dict[str, Any]:
    """The metadata of one table as a JSON-LD object.

    Args:
        about: name, description, licence (a name of LICENCES), version, published (a date), url, and rai: the
            responsible-AI texts by name.
        file, sha256, size: name of the table, its hash, and its bytes.
        record: what a row is, in the plural.
        columns: those that are described, with their types: str, int, float or bool.
        key: columns that name a row.
    """
    keys = [{"@id": f"{record}/{name}"} for name in key]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": about["name"],
        "description": about["description"],
        "license": LICENCES[about["licence"]],
        "url": about["url"],
        "version": about["version"],
        "datePublished": about["published"],
        "citeAs": about["cite"],
        **{f"rai:{name}": text for name, text in about["rai"].items()},
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": f"{record}-table",
                "name": f"{record}-table",
                "contentUrl": file,
                "contentSize": f"{size} B",
                "encodingFormat": "application/x-parquet",
                "sha256": sha256,
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": record,
                "name": record,
                "key": keys if len(keys) > 1 else keys[0],
                "field": [_field(record, name, _TYPES[kind]) for name, kind in columns.items()],
            }
        ],
    }


def _field(record: str, name: str, kind: str) -> dict[str, Any]:
    source = {"fileObject": {"@id": f"{record}-table"}, "extract": {"column": name}}
    return {"@type": "cr:Field", "@id": f"{record}/{name}", "name": name, "dataType": kind, "source": source}
