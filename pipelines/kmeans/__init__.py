"""The `fit` job and the estimator."""
