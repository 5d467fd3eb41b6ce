"""Graphs that are built in a notebook as elsewhere."""

import threading

from apache_beam import pipeline as beam_pipeline

_NAME = "alter_label_if_ipython"


class _Unlabeled:
    """Beam that gives steps no names of cells, while graphs are built and run here, in however many threads at once.

    For such names it imports what fails without pandas, and with pandas 3. No option of Beam prevents it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._own = vars(beam_pipeline).get(_NAME)
                if self._own is not None:
                    setattr(beam_pipeline, _NAME, lambda *_: None)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._own is not None:
                setattr(beam_pipeline, _NAME, self._own)


UNLABELED = _Unlabeled()
