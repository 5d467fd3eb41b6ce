"""Private k-means in rounds: the settings of `fit` and of each protocol, and the model it publishes."""
