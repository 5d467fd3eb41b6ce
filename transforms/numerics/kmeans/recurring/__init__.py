"""What releases of a series say together: matching, drift, memory, windows."""
