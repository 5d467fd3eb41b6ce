"""Beam transforms: thin adapters around `dapple_dp.transforms.numerics`."""
