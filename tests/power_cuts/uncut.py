"""Writes that no job cuts, and why none needs to; what a report finds without a reason is open."""

_STORE = "it goes to a store, whose writes last when they return"
_STAGED = "a staged file of one attempt, which the next one makes again"
_CLEARED = "it removes what an attempt has left; if that comes back, the next one removes it"
_FOLDER = "an empty folder, which the next call makes"
_TOLD = "it is shown to an operator, and never read again"
_AGAIN = "it says once more what the disk holds already, and the next call would"
_TORN = "it removes a file that was torn before it held anything; if that comes back, the next call removes it"
OF_STORES = {"STORE.make_folder", "STORE.create", "STORE.delete", "STORE.rename", "remove_files"}
REASONS: dict[str, dict[str, str]] = {
    "dapple_dp/integrations/beam_yaml.py": {"write_bytes": "a config for this process alone, in a temporary folder"},
    "pipelines/clustered_fl/job.py": {"STORE.delete": _STAGED},
    "pipelines/command/main.py": {"open": "/dev/null"},
    "pipelines/jobs/lineage.py": {"open": _TOLD},
    "pipelines/jobs/place.py": {"Ledger": _AGAIN},
    "pipelines/kmeans/fit.py": {"write_bytes": _STAGED},
    "pipelines/kmeans/free_run.py": {"delete_key": "no noise was drawn with this key, which is made again"},
    "pipelines/kmeans/plan/file_digests.py": dict.fromkeys(("write_listing", "write_bytes"), _STAGED),
    "pipelines/masked/upload.py": {"make_folder": _FOLDER},
    "pipelines/plan/leftovers.py": {"shutil.rmtree": _CLEARED},
    "pipelines/plan/starter.py": {"STORE.put_new": "a job for people to go on with, of public words"},
    "pipelines/plan/verify.py": {"write_bytes": "a signature, which is made again from the run and the key"},
    "pipelines/run/folder.py": dict.fromkeys(("shutil.rmtree", "os.unlink"), _CLEARED)
    | {"os.rmdir": "an empty folder in the place of the output"}
    | dict.fromkeys(OF_STORES, _STORE),
    "pipelines/run/graph.py": {"shutil.rmtree": "a temporary folder of Beam's"},
    "pipelines/run/run_keys.py": {"STORE.delete": _TORN},
    "pipelines/run/signals/exports.py": dict.fromkeys(("os.open", "os.replace", "os.unlink"), _TOLD),
    "pipelines/tables/arrivals/landing.py": dict.fromkeys(("STORE.delete", "os.rmdir"), _CLEARED),
    "pipelines/tables/client_staging.py": {"shutil.rmtree": _CLEARED} | dict.fromkeys(OF_STORES, _STORE),
    "pipelines/tables/epoch_clients.py": {"os.unlink": _CLEARED, "new_file.make_folders": _FOLDER},
    "pipelines/trusted_zone/sweep.py": {"write_bytes": "a part with scores, written as parts without them are"},
    "pipelines/trusted_zone/sweep_folder.py": dict.fromkeys(("shutil.rmtree", "os.remove", "os.rmdir"), _CLEARED),
    "transforms/arrivals/consume.py": {"write_bytes": _STORE},
    "transforms/clustered_fl/judge_models.py": {"write_bytes": _STAGED},
    "transforms/files/claims.py": {
        "STORE.put_new": _STORE,
        "STORE.delete": _STORE,
        "make_folder": _FOLDER,
    },
    "transforms/files/file_bytes.py": {
        "new_file.make_folders": _FOLDER,
        "STORE.put_new": _STORE,
    },
    "transforms/files/local_store.py": {"new_file.rename": "no job renames a file of a disk by it"},
    "transforms/files/new_file.py": {
        "make_folders": "the same function for the folder above",
        "create": _STORE,
    },
    "transforms/files/places/beam.py": {"STORE.create": _STORE},
    "transforms/masked/exchange_files.py": {"write_once": _AGAIN},
    "transforms/masked/party_state.py": {"STORE.delete": _CLEARED, "make_folder": _FOLDER},
    "transforms/privacy/key_files.py": {"os.unlink": _TORN},
    "transforms/privacy/plan_cache.py": dict.fromkeys(
        ("open", "os.replace", "os.unlink"), "a cache, whose torn files are recomputed"
    ),
    "transforms/rounds/staged_state.py": {"write_bytes": _STAGED},
    "transforms/tables/group_clients.py": {"make_folder": _STAGED},
    "transforms/tables/prepared_files.py": {"os.unlink": _STAGED},
    "transforms/trusted_zone/assign_rows.py": {"write_bytes": _STORE, "os.unlink": _STAGED},
}
"""By file and called function."""


def reason(site: str) -> str:
    """Why a site needs no cut; "open" where nobody has said it."""
    path, _, function = site.split(":")
    return REASONS.get(path, {}).get(function, "open")
