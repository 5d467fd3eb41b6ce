"""`deployment.yaml` of `clustered_fl`: the run as an entry of the registry of differential privacy deployments."""

from typing import Any

import yaml

from pipelines.deployment import UNKNOWN
from pipelines.prepared_federation import PreparedFederation
from pipelines.versions import version
from schemas.choices import Adjacency
from schemas.federated_output import TRUST


def deployment_yaml(prepared: PreparedFederation) -> bytes:
    """The entry of a run; what only the curator can say is "unknown"."""
    entry = {
        "url_slug": UNKNOWN,
        "deployment": {
            "basic": _basic(prepared),
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": "finite sets of labeled rows of every client",
                "unprotected_quantities": "the settings of the job; ids of clients and their declared numbers of rows",
            },
            "privacy_loss": _privacy_loss(prepared),
            "deployment_model": _model(),
            "implementation": _implementation(prepared),
            "administrative": {
                "evidence_sources": UNKNOWN,
                "status": "Draft",
                "registry_authors": [UNKNOWN],
                "tier": 3,
            },
        },
    }
    return yaml.safe_dump(entry, sort_keys=False).encode()


def _basic(prepared: PreparedFederation) -> dict[str, Any]:
    """What is published; mostly the curator's to say."""
    config, shape = prepared.config, prepared.federation.shape
    return {
        "name": config.data.name or UNKNOWN,
        "data_curators": [{"data_curator_name": UNKNOWN, "data_curator_type": UNKNOWN}],
        "description": f"Classifiers ({shape.kind}) of {shape.n_features} features into {shape.n_classes} classes, "
        f"trained by {prepared.federation.n_clients} clients with {config.algorithm}, and which client uses which.",
        "intended_use": UNKNOWN,
        "data_product_type": "Machine learning model",
        "data_product_region": UNKNOWN,
        "data_product_sector": UNKNOWN,
        "publication_date": UNKNOWN,
    }


def _privacy_loss(prepared: PreparedFederation) -> dict[str, Any]:
    """Unit and parameters."""
    statement = prepared.statement
    change = "replaced" if statement.adjacency is Adjacency.REPLACE_ONE else "added or removed"
    return {
        "privacy_unit": "record",
        "privacy_unit_details": f"Data sets are adjacent if one is the other with one row of one client {change}.",
        "number_of_privacy_units": sum(silo.n_rows for silo in prepared.federation.silos),
        "privacy_parameters": {"epsilon": statement.epsilon, "delta": statement.delta},
        "privacy_parameters_details": "Epsilon is the composed privacy loss of all that one client sends, for the "
        "client that spends most.",
    }


def _model() -> dict[str, Any]:
    """Who is trusted, and how often there is a release."""
    return {
        "model_name": "Local",
        "model_name_details": f"{TRUST}: each client is a curator of many rows and makes private what it sends.",
        "trust_assumptions": "A client's rows are trusted to that client alone. Where one pipeline plays all clients, "
        "its operator, workers and storage are trusted.",
        "actors": "Clients; the server, which sees private updates and selections; readers of the models.",
        "release_type": "One release",
        "release_type_details": "One run, published once. Whether it is repeated on the same data is unknown.",
        "data_source_type": "Static",
        "data_source_type_details": "One snapshot of the rows of every client.",
        "access_type": "Non-interactive",
        "access_type_details": "Readers get files and cannot query the data.",
    }


def _implementation(prepared: PreparedFederation) -> dict[str, Any]:
    """Mechanisms, composition and what follows them."""
    config = prepared.config
    return {
        "preprocessing_and_hyperparameter_tuning": "The gradient of a row is clipped to a norm given in the job. How "
        "the settings of the job were chosen is unknown.",
        "mechanisms": "Gaussian mechanism on Poisson-sampled and full batches (DP-SGD), in double precision, keyed by "
        "the run and drawn from a ChaCha20 key stream; exponential mechanism on counts of correct rows. "
        f"Software: dapple {version('dapple')}, algorithm {config.algorithm}. Access controls: unknown.",
        "composition": f"All events of a client by {config.privacy.accountant_used} (dp_accounting "
        f"{version('dp-accounting')}), for the adjacency {config.privacy.adjacency}, before training.",
        "post_processing": "Sums of updates per cluster, a Gaussian mixture on the first updates, sampled assignments.",
        "justification": UNKNOWN,
        "utility": UNKNOWN,
        "additional_information": "privacy.json lists every event of every client.",
    }
