"""What crosses a boundary: configs, contracts, records and errors. Imports nothing of the house."""
