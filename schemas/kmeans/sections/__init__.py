"""Sections of settings that private `fit` jobs of every algorithm have."""
