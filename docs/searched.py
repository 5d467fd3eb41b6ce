"""Words that readers look for, each with the page that the search of the site shows first."""

import json
import pathlib
import re
from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "accuracy": "how-to/plan-before-spending",
    "airflow": "how-to/schedule",
    "attack": "topics/attack",
    "aws": "how-to/use-s3",
    "azure": "how-to/use-s3",
    "beam": "tutorials/beam",
    "beam yaml": "how-to/use-elsewhere",
    "bucket": "how-to/use-s3",
    "budget": "ledger",
    "clients": "topics/units",
    "cron": "how-to/schedule",
    "csv": "tutorials/csv",
    "dataflow": "how-to/run-on-dataflow",
    "dataframe": "tutorials/dataframe",
    "delta lake": "jobs/data",
    "diffprivlib": "why-dapple",
    "docker": "how-to/run-on-flink",
    "elbow": "how-to/choose-the-number-of-clusters",
    "embeddings": "tutorials/embeddings",
    "federated learning": "how-to/run-a-federation",
    "flink": "how-to/run-on-flink",
    "gdpr": "how-to/answer-your-officer",
    "hdfs": "how-to/use-s3",
    "hospital": "how-to/run-a-federation",
    "iceberg": "jobs/data",
    "install": "start/install",
    "k-means": "jobs/fit",
    "kafka": "stream",
    "kubernetes": "how-to/run-on-flink",
    "masks": "masked",
    "missing values": "jobs/data",
    "nan": "jobs/data",
    "number of clusters": "how-to/choose-the-number-of-clusters",
    "numpy": "tutorials/dataframe",
    "one-hot": "jobs/data",
    "opendp": "why-dapple",
    "openlineage": "how-to/watch-a-run",
    "outliers": "jobs/fit",
    "pandas": "tutorials/dataframe",
    "parquet": "jobs/data",
    "patient": "topics/units",
    "person": "topics/units",
    "pickle": "upgrades",
    "pip": "start/install",
    "polars": "tutorials/dataframe",
    "postgresql": "ledger",
    "predict": "tutorials/dataframe",
    "prometheus": "how-to/watch-a-run",
    "pyarrow": "tutorials/dataframe",
    "random_state": "tutorials/dataframe",
    "s3": "how-to/use-s3",
    "sample_weight": "jobs/data",
    "save": "tutorials/dataframe",
    "scikit-learn": "tutorials/dataframe",
    "secure aggregation": "masked",
    "seed": "tutorials/dataframe",
    "silhouette": "jobs/use",
    "streaming": "stream",
    "upgrade": "upgrades",
    "verify": "how-to/verify-a-run",
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
