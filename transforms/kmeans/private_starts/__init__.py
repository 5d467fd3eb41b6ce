"""Starts of DP-Lloyd that release something: the rounds of another algorithm, and how its last state is left."""
