"""Conversion of an estimator's parameters to a job, and of the job's errors to the names of parameters."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dapple_dp.estimator.memory_rows import made_name, made_names
from dapple_dp.schemas.choices import Algorithm, ClippingCenter, ClippingRule
from dapple_dp.schemas.errors import ConfigError, DappleError
from dapple_dp.schemas.kmeans.auto_choice import LLOYD_STEPS
from dapple_dp.schemas.kmeans.fit_config import FITS, OWN_SECTIONS, FitConfig, validated
from dapple_dp.schemas.settings.section import is_number, python_scalar

_SECTIONS = (
    *(name for name, owner in OWN_SECTIONS.items() if not FITS[owner].instead_of_kmeans),
    *("feddp_kmeans", "lloyd", "quality"),
)
"""Sections of a job for settings without a parameter."""
_WORD = "experimental"
_PARAMETERS = {
    "--output": "folder",
    "recurring.previous": "folder",
    "data.features": "X",
    "data.public_rows": "public_rows",
    "data.name": "data_name",
    "data.missing": "missing",
    "names.words": "vocabulary",
    "privacy.unit": "unit",
    "privacy.epsilon": "epsilon",
    "privacy.delta": "delta",
    "privacy.allocation": "allocation",
    "clipping.norm": "clipping_norm",
    "clipping.center": "center",
    "clipping.client_rows": "client_rows",
    "dp_lloyd.domain": "domain",
    "dp_lloyd.steps": "lloyd_steps",
    "lloyd.steps": "lloyd_steps",
    "tree.radius": "clipping_norm",
}
"""Settings of a job, and flags, with the names of the estimator's parameters."""
_WORDS = {
    "a server_data section": "server_data to fit",
    "a section of max": "a mapping of max",
    "write experimental: true into the job": "give settings={'experimental': True}",
    "`dapple ledger limit`": "Ledger.limit",
    "unless the job says why": "unless you say why",
    "write justification: {unit: WHY}": "give reason='WHY'",
    "with the encode section": "by bounds of its own for each column, or by PrivateScaler",
    " Such clusters are gray or left out below.": "",
}
"""Phrases of a job's messages and report, with replacements for the estimator."""


class Place(NamedTuple):
    """Paths and columns of a fit's rows.

    Attributes:
      rows: path of the private rows.
      server: path of the public rows; None if there are none.
      features: names of the columns, or of one column of lists.
      client_id: column of clients; None for unit "record".
    """

    rows: str
    server: str | None
    features: str | tuple[str, ...]
    client_id: str | None


def job_of(parameters: Mapping[str, Any], place: Place) -> FitConfig:
    """Returns the job of a fit.

    Args:
      parameters: parameters of the estimator, by name.
      place: paths and columns of its rows.

    Raises:
      ConfigError: about the first wrong parameter, by the name of the parameter.
    """
    more, word = _more(parameters["settings"])
    given = {name: python_scalar(value) for name, value in parameters.items()}
    base: dict[str, Any] = {
        "algorithm": given["algorithm"],
        "data": {
            "path": place.rows,
            "features": place.features,
            "client_id": place.client_id,
            "public_rows": given["public_rows"],
            "name": given["data_name"],
            "missing": missing_of(given["missing"]),
        },
        "server_data": None if place.server is None else {"path": place.server},
        "n_clusters": given["n_clusters"],
        "privacy": {name: given[name] for name in ("unit", "epsilon", "delta", "allocation")},
        "ledger": path_of(given["ledger"]),
        "seed": seed_of(parameters["random_state"]),
    } | word
    _check_domain(given["domain"], place.features)
    known = given["algorithm"] in tuple(Algorithm)
    kind = FITS.get(str(given["algorithm"]))
    if kind is not None and kind.instead_of_kmeans:
        raise ConfigError(f"DPKMeans doesn't support algorithm '{given['algorithm']}'; {kind.instead_of_kmeans}.")
    bounds = _bounds(given, has_server=place.server is not None) if known else {}
    with in_parameters():
        return validated(_joined(base | bounds, more))


def missing_of(missing: Any) -> Any:
    """Converts `missing` to the setting of a job, by column; columns without names get the names that jobs use."""
    if missing is None:
        return {}
    if not isinstance(missing, Mapping):
        raise ConfigError(
            f"missing must be a mapping of columns to a number or to fill and indicator, got {missing!r}."
        )
    result: dict[str, Any] = {}
    for column, entry in missing.items():
        place = python_scalar(column)
        name = made_name(place) if isinstance(place, int) and not isinstance(place, bool) else str(column)
        result[name] = (
            {key: python_scalar(value) for key, value in entry.items()}
            if isinstance(entry, Mapping)
            else {"fill": python_scalar(entry)}
        )
    return result


@contextlib.contextmanager
def in_parameters() -> Iterator[None]:
    """Rewrites errors about settings in terms of the estimator's parameters."""
    try:
        yield
    except DappleError as error:
        raise type(error)(in_words(str(error))) from error


def _more(settings: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Splits `settings` into sections and the word `experimental`; refuses sections that parameters determine."""
    if settings is None:
        return {}, {}
    word = {}
    if isinstance(settings, Mapping) and _WORD in settings:
        word, settings = {_WORD: settings[_WORD]}, {name: each for name, each in settings.items() if name != _WORD}
    wrong = next((name for name in settings if name not in _SECTIONS), None) if isinstance(settings, Mapping) else "it"
    if wrong is not None:
        raise ConfigError(
            f"settings must be a mapping with sections {', '.join(_SECTIONS)} only, got {wrong!r}; use a parameter "
            "instead."
        )
    return {name: dict(section) for name, section in settings.items()}, word


def _joined(base: dict[str, Any], more: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the job with further settings in its sections; parameters take precedence."""
    return base | {name: section | base.get(name, {}) for name, section in more.items()}


def _bounds(given: Mapping[str, Any], *, has_server: bool) -> dict[str, Any]:
    """Returns the sections that bound rows, and the number of Lloyd rounds, under the names of the algorithm.

    Open choices are left to the rule of `auto`, as in a job. With server data, a norm around their mean or a number of
    rounds needs FedDP-KMeans.
    """
    algorithm, norm, domain, steps = (given[name] for name in ("algorithm", "clipping_norm", "domain", "lloyd_steps"))
    if norm is None and domain is None and not has_server:
        raise ConfigError(
            "clipping_norm or domain is required without server_data; give a bound that you know without looking "
            "at the rows, such as domain=(0, 100) or domain={'age': (0, 120), ...}."
        )
    if given["center"] not in tuple(ClippingCenter):
        raise ConfigError(f"center must be 'server_mean' or 'none', got {given['center']!r}; give one of them.")
    clipping = {} if given["client_rows"] is None else {"client_rows": given["client_rows"]}
    at_origin = given["center"] == ClippingCenter.NONE
    left_open = not has_server or (steps is None and (norm is None or at_origin))
    in_box = algorithm in FITS and FITS[algorithm].has_domain
    if in_box or (algorithm == Algorithm.AUTO and left_open):
        clipping |= {"center": ClippingCenter.NONE} if at_origin and has_server and not in_box else {}
        return _bounds_in_box(algorithm, norm, _plain(domain), steps, clipping)
    if domain is not None and algorithm != Algorithm.AUTO:
        raise ConfigError(
            f"domain isn't supported for algorithm {algorithm!r}; leave it out, or use algorithm 'dp_lloyd' or 'auto'."
        )
    clipping |= {"center": _center(given, has_server=has_server)}
    if algorithm == Algorithm.CENTRAL_TREE:
        tree = {} if norm is None else {"radius": norm}
        return {"tree": tree, "clipping": clipping, "lloyd": {"steps": 0 if steps is None else steps}}
    clipping["norm"] = ClippingRule.SERVER_RADIUS if norm is None and has_server else norm
    usual = 0 if algorithm == Algorithm.FEDDP_KMEANS else LLOYD_STEPS
    return {"clipping": clipping, "lloyd": {"steps": usual if steps is None else steps}}


def _check_domain(domain: Any, features: str | tuple[str, ...]) -> None:
    """Refuses names if columns have none, and bounds in the order of `X.min(axis=0), X.max(axis=0)`."""
    if isinstance(features, str):
        return
    if isinstance(domain, Mapping):
        if features == made_names(len(features)) and not set(domain) & set(features):
            raise ConfigError(
                "domain must be a list of (lower, upper) pairs if X has no column names, got names; give such a "
                "list, or give X as a table."
            )
        return
    try:
        ends = np.asarray(domain, dtype=np.float64)
    except (TypeError, ValueError):
        return
    turned = ends.shape == (2, len(features)) and bool((ends[0] < ends[1]).all())
    if turned and not (len(features) == 2 and (ends[:, 0] < ends[:, 1]).all()):
        raise ConfigError(
            "domain must be a pair (lower, upper) for each column, got all lower bounds and then all upper ones; give "
            "list(zip(lower, upper)) of bounds that you know without looking at the rows."
        )


def _bounds_in_box(
    algorithm: str, norm: Any, domain: Any, steps: int | None, clipping: dict[str, Any]
) -> dict[str, Any]:
    """Returns the sections of DP-Lloyd or `auto`: a box, a ball around the origin, or both."""
    auto, number = algorithm == Algorithm.AUTO, norm is not None and not isinstance(norm, str)
    if domain is None and not auto:
        if not number:
            raise ConfigError(
                f"domain is required for algorithm '{algorithm}'; give a pair of numbers for all columns, a list of "
                "pairs or a mapping by name."
            )
        domain = [-norm, norm]
    bounds = {} if domain is None else {"domain": domain}
    if steps is not None:
        bounds["steps"] = steps
    sections: dict[str, Any] = {"dp_lloyd": bounds} if bounds else {}
    if auto and domain is not None and number:
        return sections | {"tree": {"radius": norm}, "clipping": clipping}
    return sections | {"clipping": clipping if norm is None else clipping | {"norm": norm}}


def _center(given: Mapping[str, Any], *, has_server: bool) -> Any:
    """Returns the center of the clipping ball; the origin if server data would be needed and aren't given."""
    at_origin = not has_server and given["center"] == ClippingCenter.SERVER_MEAN
    return ClippingCenter.NONE if at_origin else given["center"]


def _plain(domain: Any) -> Any:
    """Converts NumPy's types in bounds to Python's."""
    if isinstance(domain, Mapping):
        return {name: _plain(pair) for name, pair in domain.items()}
    if isinstance(domain, list | tuple | np.ndarray):
        return [_plain(pair) for pair in domain]
    return python_scalar(domain)


def path_of(ledger: Any) -> Any:
    """Returns the path of a ledger as text for a job."""
    return os.fspath(ledger) if isinstance(ledger, os.PathLike) else ledger


def seed_of(random_state: Any) -> Any:
    """Returns the seed of public randomness; raises ConfigError."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    if random_state is None or is_number(python_scalar(random_state), 0, np.iinfo(np.int64).max):
        return python_scalar(random_state)
    raise ConfigError(
        f"random_state must be an integer >= 0, a RandomState or None, got {random_state!r}; it never decides noise."
    )


def in_words(sentence: str) -> str:
    """Rewrites a sentence about a job's settings or report in the words of the estimator."""
    for setting, parameter in _PARAMETERS.items():
        sentence = re.sub(rf"(?<![\w.]){re.escape(setting)}\b", parameter, sentence)
    for ours, words in _WORDS.items():
        sentence = sentence.replace(ours, words)
    return sentence
