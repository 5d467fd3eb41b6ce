"""Configs, contracts, records and errors that all layers share; imports no other package of Dapple."""
