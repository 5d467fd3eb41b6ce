"""A hospital's own file from CSV to the report: what `init` asks on the way, and whom the result protects."""

import json

from dapple_dp.schemas.settings import yaml_text
from tests.scenes import lake, visits


def test_visits_go_to_a_report_that_protects_patients(tmp_path):
    visits.write(tmp_path / "visits.csv")
    job, result = tmp_path / "job.yaml", tmp_path / "result"
    words = ["init", "--data", str(tmp_path / "visits.csv"), "--output", str(job), "--clusters", "2", "--epsilon", "8"]
    asked = []
    for flags in (
        ("--client_id", "patient", "--client_rows", "3"),
        ("--missing", "creatinine_mg_dl=1.0", "--missing", "hba1c=5.5"),
    ):
        refused = lake.run_command(*words)
        assert (refused.code, job.exists()) == (2, False)
        asked.append(refused.lines[-1])
        assert f"{flags[0]} {flags[1].partition('=')[0]}" in refused.err
        words += flags
    assert '"patient"' in asked[0]
    assert "--unit record" in asked[0]
    assert '"creatinine_mg_dl", "hba1c"' in asked[1]
    bounds = {"age": "0,120", "creatinine_mg_dl": "0,10", "hba1c": "3,15"}
    done = lake.run_command(*words, *(word for name in bounds for word in ("--domain", f"{name}={bounds[name]}")))
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1])["complete"] is True
    for name, reason in {"sex": "text", "icd10": "text", "admitted": "a date or a time"}.items():
        assert f'Left out: "{name}", {reason}.\n' in done.out
    settings = yaml_text.parse(job.read_text())
    assert settings["data"]["client_id"] == "patient"
    assert settings["privacy"]["unit"] == "client"
    assert "on_invalid_rows" not in settings["data"]
    assert settings["data"]["missing"] == {
        "creatinine_mg_dl": {"fill": 1.0, "indicator": True},
        "hba1c": {"fill": 5.5, "indicator": True},
    }
    # Rows with holes would stop this fit, so none is lost.
    fitted = lake.run_command("fit", "--config", str(job), "--output", str(result))
    assert fitted.code == 0, fitted.err
    assert json.loads((result / "privacy.json").read_text())["unit"] == "client"
    assert (result / "report.html").stat().st_size > 10_000
