"""Estimators: private clustering with the interface of scikit-learn."""
