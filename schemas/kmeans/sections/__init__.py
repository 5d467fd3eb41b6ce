"""Sections of settings that a private `fit` job has, whatever its algorithm."""
