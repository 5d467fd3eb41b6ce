"""Computes centers from sums of reports."""
