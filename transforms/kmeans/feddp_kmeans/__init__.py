"""FedDP-KMeans (Scott, Lampert and Saulpic), and the baselines that start from server data."""
