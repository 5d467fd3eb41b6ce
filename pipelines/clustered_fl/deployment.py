"""`deployment.yaml` of `clustered_fl`: the run as an entry of the registry of differential privacy deployments."""

from typing import Any

from pipelines.clustered_fl.planned import PlannedFederation
from pipelines.run.registry_entry import (
    basic_section,
    implementation_section,
    model_section,
    registry_entry,
    registry_yaml,
)
from pipelines.run.versions import version
from schemas.choices import Adjacency
from schemas.clustered_fl.output import TRUST


def deployment_yaml(planned: PlannedFederation) -> bytes:
    """The entry of a run; what only the curator can say is "unknown"."""
    return registry_yaml(
        registry_entry(
            basic=_basic(planned),
            dp_variant={
                "variant_name": "Approximate DP",
                "data_domain": "finite sets of labeled rows of every client",
                "unprotected_quantities": "the settings of the job; ids of clients and their declared numbers of rows",
            },
            privacy_loss=_privacy_loss(planned),
            deployment_model=_model(),
            implementation=_implementation(planned),
        )
    )


def _basic(planned: PlannedFederation) -> dict[str, Any]:
    """What is published; mostly the curator's to say."""
    config, shape = planned.config, planned.federation.shape
    description = (
        f"Classifiers ({shape.kind}) of {shape.n_features} features into {shape.n_classes} classes, "
        f"trained by {planned.federation.n_clients} clients with {config.algorithm}, and which client uses which."
    )
    return basic_section(config.data.name, description)


def _privacy_loss(planned: PlannedFederation) -> dict[str, Any]:
    """Unit and parameters."""
    statement = planned.statement
    change = "replaced" if statement.adjacency is Adjacency.REPLACE_ONE else "added or removed"
    return {
        "privacy_unit": "record",
        "privacy_unit_details": f"Data sets are adjacent if one is the other with one row of one client {change}.",
        "number_of_privacy_units": sum(silo.n_rows for silo in planned.federation.silos),
        "privacy_parameters": {"epsilon": statement.epsilon, "delta": statement.delta},
        "privacy_parameters_details": "Epsilon is the composed privacy loss of all that one client sends, for the "
        "client that spends most.",
    }


def _model() -> dict[str, Any]:
    """Who is trusted, and how often there is a release."""
    return model_section(
        "Local",
        f"{TRUST}: each client is a curator of many rows and makes private what it sends.",
        trust_assumptions="A client's rows are trusted to that client alone. Where one pipeline plays all clients, "
        "its operator, workers and storage are trusted.",
        actors="Clients; the server, which sees private updates and selections; readers of the models.",
        release="One run, published once. Whether it is repeated on the same data is unknown.",
        source="One snapshot of the rows of every client.",
    )


def _implementation(planned: PlannedFederation) -> dict[str, Any]:
    """Mechanisms, composition and what follows them."""
    config = planned.config
    return implementation_section(
        preprocessing="Rows are shortened to a public norm and rounded to integers, and the gradient of a row is "
        "clipped to a norm given in the job. How the settings of the job were chosen is unknown.",
        mechanisms="Gaussian mechanism on Poisson-sampled and full batches (DP-SGD), noise in double precision, keyed "
        "by the run and drawn from a ChaCha20 key stream; exponential mechanism on counts of correct rows. "
        f"Software: dapple {version('dapple-dp')}, algorithm {config.algorithm}. Access controls: unknown.",
        composition=f"All events of a client by {config.privacy.accountant_used} (dp_accounting "
        f"{version('dp-accounting')}), for the adjacency {config.privacy.adjacency}, before training.",
        post_processing="Sums of updates per cluster, a Gaussian mixture on the first updates, sampled assignments.",
        more="privacy.json lists every event of every client.",
    )
