"""NVFlare's `SVTPrivacy` on the centers of its k-means recipe."""

TITLE = "nvflare"
WHAT = (
    "NVFlare 2.9.0: centers of one client after k-means, as in the recipe, through `SVTPrivacy` with all of them sent, "
    "`gamma` half the box, epsilon in halves. At stock `gamma` of 1e-5 every center would be about 0."
)
NEEDS = ("nvflare==2.9.0", "scikit-learn==1.9.1")
REPOSITORY = None
CLAIM = "pure epsilon, by its accountant"


def fit(job, seed):
    import logging

    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy
    from sklearn.cluster import KMeans

    logging.disable(logging.CRITICAL)
    centers = KMeans(job.k, n_init=1).fit(job.rows).cluster_centers_
    half = {"epsilon": job.epsilon / 2, "epsilon_release": job.epsilon / 2}
    private = SVTPrivacy(fraction=1.0, gamma=float(job.bounds[1]), replace=False, **half)
    sent = private.process_dxo(DXO(DataKind.WEIGHTS, data={"center": centers}), Shareable(), FLContext())
    assert abs(private.get_privacy_spent() - job.epsilon) < 1e-9
    return {"centers": sent.data["center"]}
