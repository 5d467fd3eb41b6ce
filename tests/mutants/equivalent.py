"""Mutants that no test can notice, since they compute or refuse the same, each with the reason.

Keys are names of mutants: file, class and function, and the change; not numbers of lines.
"""

EQUIVALENT: dict[str, str] = {}
