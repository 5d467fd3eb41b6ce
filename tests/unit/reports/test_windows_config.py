"""Settings of a `decode` with windows, its calendar, and what it says of clients in several windows."""

import datetime

import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import DecodeConfig, load_encode_config, load_shuffle_config
from dapple_dp.schemas.reports.windows import WindowedDecode, load_any_decode, load_windowed_decode
from tests.scenes.reports import settings

WINDOWS = {"name": "phones", "column": "dt", "first": "2026-01-01", "windows": 3}


def text(**windows):
    return yaml.safe_dump({"reports": {"path": "inbox/"}, "seed": 4, "windows": WINDOWS | windows})


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ({"name": "a/b"}, "windows.name must be"),
        ({"column": "a/b"}, "windows.column must be"),
        ({"first": "1 January"}, "windows.first must be a date like 2026-01-31"),
        ({"windows": 0}, "windows.windows must be at least 1, got 0"),
        ({"windows": 10_001}, "windows.windows must be at most 10000, got 10001"),
        ({"days": 0}, "windows.days must be at least 1, got 0"),
        ({"settle": -1}, "windows.settle must be at least 0, got -1"),
        ({"settle": 2_592_001}, "windows.settle must be at most 2592000"),
        ({"min_batch": 5}, "windows.min_batch"),
    ],
)
def test_wrong_windows_are_refused_in_one_sentence(windows, message):
    with pytest.raises(ConfigError, match=message):
        load_any_decode(text(**windows))


def test_windows_need_reports_and_a_section():
    with pytest.raises(ConfigError, match=r"reports\.path is required for decode"):
        load_any_decode(yaml.safe_dump({"reports": {}, "windows": WINDOWS}))
    with pytest.raises(ConfigError, match=r"windows must be"):
        load_any_decode("{reports: {path: inbox}, windows: null}")
    with pytest.raises(ConfigError, match=r"windows.column is required"):
        load_any_decode("{reports: {path: inbox}, windows: {name: phones, first: 2026-01-01, windows: 3}}")


@pytest.mark.parametrize(
    ("reports", "windows", "message"),
    [
        ({"parameters": None}, {}, r"reports\.parameters is required for reports from a topic"),
        ({"mode": "shuffle"}, {}, r"reports\.mode must be 'local' for reports from a topic"),
        ({}, {"settle": 9}, r"windows\.settle must be at least 10 seconds for a topic, got 9"),
        ({}, {"kafka": {"servers": "localhost:9092"}}, r"windows\.kafka\.topic is required"),
        ({}, {"kafka": {"servers": "a", "topic": "b", "max_message_bytes": 5}}, r"max_message_bytes"),
    ],
)
def test_wrong_windows_of_a_topic(reports, windows, message):
    topic = {"kafka": {"servers": "localhost:9092", "topic": "phones"}}
    own = {"path": "copies", "parameters": "public.json"} | reports
    settings = {"reports": {name: value for name, value in own.items() if value}, "windows": WINDOWS | topic | windows}
    with pytest.raises(ConfigError, match=message):
        load_any_decode(yaml.safe_dump(settings))
    assert load_any_decode(yaml.safe_dump(settings | {"windows": WINDOWS, "reports": {"path": "inbox"}}))


def test_the_section_decides_which_job_it_is():
    assert type(load_any_decode("reports: {path: inbox}")) is DecodeConfig
    assert type(load_any_decode(text())) is WindowedDecode


def test_a_window_is_the_decode_of_its_folder():
    config = load_windowed_decode(text(days=7))
    window = config.window(1)
    assert (window.date, window.root) == ("2026-01-08", "inbox")
    assert window.config == DecodeConfig.model_validate(
        {"reports": {"path": "inbox/dt=2026-01-08", "parameters": "inbox/parameters.json"}, "seed": 4}
    )
    own = yaml.safe_load(text()) | {"reports": {"path": "inbox", "parameters": "public.json"}}
    assert load_windowed_decode(yaml.safe_dump(own)).window(0).config.reports.parameters == "public.json"


def test_one_file_of_settings_serves_all_three_jobs():
    whole = settings(reports__path="inbox", reports__arrived="arrived") | {"windows": WINDOWS, "seed": 4}
    content = yaml.safe_dump(whole)
    assert load_windowed_decode(content).job == load_encode_config(content)
    assert load_shuffle_config(content).job == load_encode_config(content)


def test_a_window_is_due_when_its_days_are_over_and_have_settled():
    calendar = load_windowed_decode(text(days=2, settle=90)).calendar
    moment = datetime.datetime(2026, 1, 5, 0, 1, 30, tzinfo=datetime.UTC)
    assert calendar.due_at(1) == moment
    assert [calendar.is_due(index, moment) for index in range(3)] == [True, True, False]
    assert not calendar.is_due(1, moment - datetime.timedelta(seconds=1))
