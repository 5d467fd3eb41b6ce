"""FastLloyd, the code of its authors."""

TITLE = "fastlloyd"
WHAT = (
    "`local_proto` of D-Diaa/FastLloyd, two clients; analytic Gaussian, `diagonal_then_frac`, alpha 0.8, folded, as in "
    "its accuracy runs."
)
NEEDS = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "numpy==2.4.6", "scipy==1.17.1", "tqdm==4.70.1", "matplotlib")
REPOSITORY = ("https://github.com/D-Diaa/FastLloyd", "a4f65f15916f988e323b545bdc914185c732000e", ".")
FOLDERS = ("data",)
CLAIM = "(epsilon, delta)"


def fit(job, seed):
    import numpy as np
    from configs import Params
    from data_io import to_fixed, unscale
    from utils.protocols import local_proto

    settings = {} if seed is None else {"seed": seed}
    n_rows, n_features = job.rows.shape
    params = Params(
        num_clients=2,
        k=job.k,
        dim=n_features,
        data_size=n_rows,
        dp="gaussiananalytic",
        eps=job.epsilon,
        method="diagonal_then_frac",
        alpha=0.8,
        post="fold",
        **settings,
    )
    params.calculate_iters()
    centers, unassigned = local_proto(np.array_split(to_fixed(job.rows), 2), params)
    return {"centers": unscale(np.asarray(centers)), "unassigned": unassigned}
