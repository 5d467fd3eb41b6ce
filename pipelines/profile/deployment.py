"""`deployment.yaml` of `profile`: the run as an entry of the registry of differential privacy deployments."""

from pipelines.run.registry_entry import (
    basic_section,
    implementation_section,
    model_section,
    registry_entry,
    registry_yaml,
)
from pipelines.run.versions import version
from schemas.privacy.unit import UNITS
from schemas.profile.config import ProfileConfig
from schemas.profile.plan import ProfileLaw, ProfilePlan

_NOISE = {
    ProfileLaw.GAUSSIAN: "Gaussian mechanism",
    ProfileLaw.LAPLACE: "Laplace mechanism",
    ProfileLaw.GAUSSIAN_THRESHOLD: "Gaussian thresholding, which names only values that enough units share",
}


def deployment_yaml(config: ProfileConfig, plan: ProfilePlan) -> bytes:
    """The entry of a run."""
    numbers = ", ".join(sorted({each.path.split("/")[1] for each in plan.events}))
    description = (
        f"Noisy {numbers} of {len(plan.numeric) + len(plan.categorical)} columns in each of the {plan.n_clusters} "
        "clusters of a released model."
    )
    return registry_yaml(
        registry_entry(
            basic=basic_section(config.data.name, description),
            dp_variant={
                "variant_name": "Approximate DP",
                "data_domain": "finite sets of rows with numbers inside public bounds, and values",
                "unprotected_quantities": "the settings of the job, bounds and public vocabularies among them; the "
                "model that is described, which was released under a budget of its own",
            },
            privacy_loss=_privacy_loss(plan),
            deployment_model=_model(),
            implementation=_implementation(plan),
        )
    )


def _privacy_loss(plan: ProfilePlan) -> dict[str, object]:
    """Unit and parameters."""
    counted = f", of which {plan.unit_rows} count," if plan.by_client else ""
    return {
        "privacy_unit": str(plan.unit),
        "privacy_unit_details": f"Data sets are adjacent if one is the other with {UNITS[plan.unit].by_id}{counted} "
        "added or removed (add or remove one).",
        "number_of_privacy_units": f"unknown: the number of {UNITS[plan.unit].words} is private",
        "privacy_parameters": {"epsilon": plan.epsilon, "delta": plan.delta},
        "privacy_parameters_details": "Epsilon is the composed privacy loss of all mechanisms at this delta; the "
        "odds of naming a value of one unit are part of delta. The model has spent a budget of its own, which adds "
        "up with this.",
    }


def _model() -> dict[str, object]:
    """Who is trusted, and how often there is a release."""
    return model_section(
        "Central",
        "The pipeline is the trusted aggregator: its workers read rows, and PipelineDP adds noise before anything "
        "leaves.",
        trust_assumptions="The operator of the pipeline, its workers and its storage are trusted; readers of the "
        "outputs are not.",
        actors="Clients or owners of rows; the operator, who runs the pipeline; readers of the published files, who "
        "may know everything else.",
        release="One run, published once. Whether it is repeated on the same data is unknown.",
        source="One snapshot of the data, read by one run.",
    )


def _implementation(plan: ProfilePlan) -> dict[str, object]:
    """Mechanisms, composition and what follows them."""
    laws = sorted({_NOISE[each.law] for each in plan.events})
    return implementation_section(
        preprocessing="Numbers are cut to public bounds, and each client's rows to a public number. How the settings "
        "of the job were chosen is unknown.",
        mechanisms=f"{'; '.join(laws)}; {len(plan.events)} in all, by PipelineDP {version('pipeline-dp')} on integers: "
        f"sums and counts are exact. Software: dapple {version('dapple')}, job profile. Access controls: unknown.",
        composition=f"{len(plan.events)} mechanisms, composed by privacy loss distributions for adding or removing one "
        "unit, before any data are read; sampling is not counted on.",
        post_processing="A mean is the noisy sum over the noisy count, inside its bounds; nothing else follows.",
        more="privacy.json lists every mechanism with sensitivity and noise multiplier.",
    )
