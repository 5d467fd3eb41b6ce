"""Starts of centers: grids, seeding and packed spheres."""
