"""The estimator: a private clustering with the habits of scikit-learn."""
