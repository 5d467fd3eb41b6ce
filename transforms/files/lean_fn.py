"""DoFns of which Beam inspects little: building and starting a graph is most of a small job."""

import apache_beam as beam

_BEAMS_OWN = frozenset(dir(beam.DoFn)) - {"process", "start_bundle", "finish_bundle"}


class LeanFn(beam.DoFn):
    """A DoFn whose graph is built without a look at what Beam itself has put into every DoFn.

    Beam looks for state and timers in the signatures of all methods that `dir` names, and does so eight times a step.
    Of some thirty methods it wrote all but two or three itself, and these have none.
    """

    def __dir__(self) -> list[str]:
        """What the class adds, with the methods that are given elements or bundles."""
        return list({name for each in type(self).__mro__ for name in vars(each)} - _BEAMS_OWN)
