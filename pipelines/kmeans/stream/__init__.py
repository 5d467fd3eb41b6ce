"""The `stream` job: fits the windows of an epoch in turn, and draws a page of all of them."""
