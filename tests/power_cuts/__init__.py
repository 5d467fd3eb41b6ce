"""Power cuts: commands are recorded call by call, disks are rebuilt as a cut could leave them, commands run again.

`python -m tests.power_cuts --help` runs it.
"""
