"""Scores and exact clusterings, without privacy."""
