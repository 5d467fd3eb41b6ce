"""Messages of split and mix as devices send them."""

import numpy as np
import pyarrow as pa

from dapple_dp.schemas.reports.split_parameters import SplitParameters
from dapple_dp.transforms.numerics.reports import split_reports
from dapple_dp.transforms.reports.split_messages import UPLOAD_SCHEMA
from tests.scenes.lake import KEY


def arrived(points: np.ndarray, public: SplitParameters) -> pa.Table:
    """Messages of clients 0, 1, ... with integer ids, one after the other."""
    ids = [b"integers%d" % index for index in range(len(points))]
    sent = split_reports.encode_clients(points, ids, public, KEY)
    uploads = np.random.default_rng(len(points)).permutation(2**20)[: len(points)]
    columns = [np.repeat(uploads, public.messages_per_client), sent.places, sent.shares]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, UPLOAD_SCHEMA, strict=True)], UPLOAD_SCHEMA)
