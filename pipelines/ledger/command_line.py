"""The words and flags of the `ledger` command; no Beam here, so that its help and its refusals come at once."""

import argparse
from collections.abc import Sequence

from pipelines.run.flags import Parser
from schemas.privacy.plan import PrivacyUnit

_USAGE = "dapple ledger limit|show|plan|verify|export --ledger FILE"


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; raises ConfigError, in one sentence."""
    parser = Parser(prog="dapple ledger", allow_abbrev=False, form=_USAGE)
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("limit", "show", "plan", "verify", "export"):
        action = actions.add_parser(name, allow_abbrev=False, form=_USAGE)
        action.add_argument("--ledger", required=True, help="the ledger's file")
        if name == "limit":
            action.add_argument("--dataset", required=True, help="data.name of the jobs")
            action.add_argument("--epsilon", required=True, type=float, help="of all runs together")
            action.add_argument("--delta", required=True, type=float, help="of all runs together")
            action.add_argument("--basic_epsilon", default=0.0, type=float, help="part for other than Gaussian runs")
            action.add_argument("--basic_delta", default=0.0, type=float, help="part for other than Gaussian runs")
            action.add_argument("--unit", default=None, choices=tuple(map(str, PrivacyUnit)), help="what is protected")
        if name == "plan":
            action.add_argument("--dataset", required=True, help="data.name of the jobs")
            action.add_argument("--runs", required=True, type=int, help="how many runs are to fit together")
            action.add_argument("--delta", default=None, type=float, help="of each run; default: that of the limit")
        if name == "verify":
            action.add_argument("--head", default=None, help="digest that an earlier verify printed")
        if name == "export":
            action.add_argument("--format", default="jsonl", choices=("jsonl", "csv"), help="of the rows")
            action.add_argument("--output", default=None, help="file to write; default: the standard output")
    return parser.parse_args(list(argv))
