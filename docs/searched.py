"""Words that readers look for, each with the page that the search of the site shows first."""

import json
import pathlib
import re
from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "airflow": "how-to/schedule",
    "beam": "tutorials/beam",
    "budget": "ledger",
    "cron": "how-to/schedule",
    "csv": "tutorials/csv",
    "dataflow": "how-to/run-on-dataflow",
    "dataframe": "tutorials/dataframe",
    "docker": "how-to/run-on-flink",
    "flink": "how-to/run-on-flink",
    "iceberg": "jobs/data",
    "install": "start/install",
    "kafka": "stream",
    "kubernetes": "how-to/run-on-flink",
    "numpy": "tutorials/dataframe",
    "pandas": "tutorials/dataframe",
    "parquet": "jobs/data",
    "pip": "start/install",
    "polars": "tutorials/dataframe",
    "pyarrow": "tutorials/dataframe",
    "s3": "how-to/use-s3",
    "scikit-learn": "tutorials/dataframe",
}


def marked(page: str, text: str) -> str:
    """A page whose main index entries are its words, below its heading: the search puts these before all else."""
    words = ", ".join(f"! {word}" for word, where in WORDS.items() if where == page)
    entries = f"\n\n```{{index}} {words}\n```" if words else ""
    return re.sub(r"^# .+$", lambda heading: heading[0] + entries, text, count=1, flags=re.MULTILINE)


def lost_words(folder: pathlib.Path) -> list[str]:
    """Words for which the index of a built site does not have their page, and that page alone, as main entry."""
    index = json.loads(re.sub(r"^Search\.setIndex\(|\)$", "", (folder / "searchindex.js").read_text().strip()))
    found = {
        word: {index["docnames"][entry[0]] for entry in index["indexentries"].get(word, []) if entry[2]}
        for word in WORDS
    }
    return [word for word, page in WORDS.items() if found[word] != {page}]
