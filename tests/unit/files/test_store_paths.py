"""Files of stores: the same paths as Beam's are local."""

import pytest
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dapple_dp.transforms.files import stores
from tests.scenes.stores import Store, store

PATHS = [
    *("rows.parquet", "/data/rows.parquet", "file:///data/rows.parquet", "gs://bucket/rows", "s3://bucket/rows"),
    *("hdfs://host/rows", "C:\\rows", "", "://rows", " gs://bucket/rows", "\ngs://rows", "FILE:///rows", "gs:/rows"),
    *(
        "1s://rows",
        "a+b-c.d://rows",
        "a_b://rows",
        "x/gs://rows",
        "file://",
        "gs://rows\nnext",
        "gs ://rows",
        "fi\nle://",
    ),
    *("\x00gs://rows", "/data/file://rows", "file:/rows", "a" * 70 + "://rows"),
]


@pytest.mark.parametrize("path", PATHS)
def test_the_paths_that_beam_takes_for_local_are_local(path):
    assert stores.is_local(path) == (FileSystems.get_scheme(path) in (None, "file"))


def test_an_error_of_a_store_is_one_of_a_file():
    """Readers of files catch errors of files, and know no others."""
    assert issubclass(BeamIOError, OSError)


def test_a_file_of_a_store():
    with store() as root:
        Store.objects[f"{root}a"] = b"rows"
        assert stores.open_store(f"{root}a").source.read() == b"rows"
        assert stores.STORE.stat(f"{root}a") == (4, "")
        with pytest.raises(OSError, match="no such object"):
            stores.open_store(f"{root}b")
    with pytest.raises(ValueError, match="nowhere"):
        stores.open_store("nowhere://a")
