"""Masked aggregation of Dapple over Flower: files of the exchange travel as messages, and Dapple's jobs read them."""
