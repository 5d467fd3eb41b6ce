"""Declared exceptions to the one noise stage: transforms whose outputs are private by a mechanism of their own."""

from typing import Any

import apache_beam as beam


class DeclaredMechanism(beam.PTransform):
    """Base of the exceptions. Private data in, differentially private elements out.

    A subclass is audited as a whole: the privacy-flow checker does not look inside, takes its outputs for public, and
    counts what it declares. It must be listed in `transforms.privacy_flow.allow_list` with rule `DECLARED`, and the job
    must promise the same: `Promise(declared=...)`.
    """

    def declared(self) -> Any:
        """The spending, calibrated: a value that equals the one the job's accountant was given."""
        raise NotImplementedError(f"{type(self).__name__} must declare what it spends; define declared().")

    def measured(self) -> Any:
        """The plan that all inputs must have been measured by; None if they need not have been."""
        return None

    def understatement(self) -> str | None:
        """The fault in the sensitivities that are declared, in words; None if nothing is."""
        return None
