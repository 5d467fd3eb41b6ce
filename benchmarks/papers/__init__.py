"""Figures of the papers drawn again; scripts, not part of the package."""
