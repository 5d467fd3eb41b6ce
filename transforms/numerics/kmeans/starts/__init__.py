"""Where centers start: grids, seeding and packed spheres."""
