"""Beam transforms: thin adapters around `transforms.numerics`."""
