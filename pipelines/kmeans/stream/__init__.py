"""The `stream` job: windows of an epoch, one fit after another, and a page of all of them."""
