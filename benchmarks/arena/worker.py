"""Runs an adapter on jobs; in the system's own environment, which has nothing of this project.

    python worker.py ADAPTER.py FOLDER

FOLDER has `jobs.npz`: `jobs` (JSON: a list of settings, in which `rows` and `server` are indices of arrays) and arrays
`array_I`. As soon as job J is done, `J.npz` is there, and a line says so: `centers` (fits, k, d), NaN where a fit has
fewer centers or none; `error` and `seconds` (fits,); and whatever else the system publishes, by name. NumPy's global
stream begins with the seed of a fit, if there is one.
"""

import contextlib
import importlib.util
import io
import json
import os
import signal
import sys
import time
import types
import warnings

import numpy as np


class SlowError(Exception):
    """A fit has taken its time."""


def adapter(path):
    """The module in a file, under a name that no package has."""
    spec = importlib.util.spec_from_file_location("arena_adapter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one(fit, job, seed):
    """Returns what a fit publishes, the reason if it ends without, and its CPU seconds."""

    def late(*_):
        raise SlowError

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, job.limit)
    if seed is not None:
        np.random.seed(seed)  # noqa: NPY002 - others draw from it
    start = time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = fit(job, seed)
        return found, "", time.process_time() - start
    except SlowError:
        return {}, f"not done in {job.limit} CPU s", time.process_time() - start
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the system answers
        return {}, f"{type(error).__name__}: {error}"[:200], time.process_time() - start
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def stacked(found, name, shape):
    """One published array of all fits; NaN where a fit has none, or fewer rows than the widest."""
    whole = np.full((len(found), *shape), np.nan)
    for index, each in enumerate(found):
        if np.size(each.get(name, ())):
            values = np.asarray(each[name], dtype=np.float64)
            whole[(index, *(slice(size) for size in values.shape))] = values
    return whole


def fits(fit, job, slow):
    """Arrays of all fits of a job. What was too slow once is not tried again on rows of the same shape."""
    done, size = [], (*job.rows.shape, job.k)
    for seed in job.seeds:
        done.append(({}, slow[size], 0.0) if size in slow else one(fit, job, seed))
        if done[-1][1].startswith("not done"):
            slow[size] = done[-1][1]
    found = [each for each, _, _ in done]
    arrays = {"centers": stacked(found, "centers", (job.k, job.rows.shape[1]))}
    for name in sorted({name for each in found for name in each} - {"centers"}):
        shapes = [np.shape(each[name]) for each in found if name in each]
        arrays[name] = stacked(found, name, tuple(max(sizes) for sizes in zip(*shapes, strict=True)))
    return arrays | {"error": np.array([error for _, error, _ in done]), "seconds": np.array([s for *_, s in done])}


def main():
    """Runs all jobs of the folder."""
    warnings.simplefilter("ignore")
    fit, folder, slow = adapter(sys.argv[1]).fit, sys.argv[2], {}
    with np.load(f"{folder}/jobs.npz") as file:
        for index, settings in enumerate(json.loads(str(file["jobs"]))):
            for name in ("rows", "server"):
                settings[name] = None if settings[name] is None else file[f"array_{settings[name]}"]
            np.savez(f"{folder}/part.npz", **fits(fit, types.SimpleNamespace(**settings), slow))
            os.replace(f"{folder}/part.npz", f"{folder}/{index}.npz")
            print(index, flush=True)


if __name__ == "__main__":
    main()
