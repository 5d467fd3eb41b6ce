"""Attacks, a file each: the runs that it asks a system for, and the scores that distinguish two neighbors."""
