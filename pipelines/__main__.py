"""Deprecated entry point `python -m pipelines`, the former name of `dapple`; removed on 2027-05-31."""

import runpy
import sys

if __name__ == "__main__":
    sys.stderr.write(
        "dapple: `python -m pipelines` is deprecated and will be removed on 2027-05-31; "
        "use `dapple` or `python -m dapple_dp`.\n"
    )
    runpy.run_module("dapple_dp", run_name="__main__")
