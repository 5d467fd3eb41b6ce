"""Jobs whose outputs are as private as their input: assign, evaluate, sweep, pooled fits."""
