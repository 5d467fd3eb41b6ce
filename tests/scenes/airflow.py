"""Airflow stood in for, as far as `schedule/airflow_operators.py` and the DAG use it."""

import importlib
import pathlib
import sys
import types
from unittest import mock

SCHEDULE = pathlib.Path(__file__).resolve().parents[2] / "schedule"


class TaskError(Exception):
    """Airflow's."""


class FinalTaskError(TaskError):
    """Airflow's, which no retry follows."""


class Operator:
    """Airflow's base of operators."""

    def __init__(self, *, task_id):
        self.task_id = task_id

    def __rrshift__(self, before):
        return before


def stand_in(monkeypatch):
    """The provider's module, with Airflow stood in for."""

    def module(name, **content):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**content))

    module("pendulum", datetime=mock.MagicMock())
    others = {name: mock.MagicMock() for name in ("DAG", "CronDataIntervalTimetable", "ObjectStoragePath")}
    module("airflow.sdk", BaseOperator=Operator, **others)
    module("airflow.sdk.exceptions", AirflowException=TaskError, AirflowFailException=FinalTaskError)
    module("airflow.providers.standard.sensors.python", PythonSensor=mock.MagicMock())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(SCHEDULE)
    monkeypatch.delitem(sys.modules, "airflow_operators", raising=False)
    provider = importlib.import_module("airflow_operators")
    monkeypatch.delitem(sys.modules, "airflow_operators")
    monkeypatch.setitem(sys.modules, "airflow_operators", provider)
    return provider
