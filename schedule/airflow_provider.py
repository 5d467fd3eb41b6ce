"""Information on the provider, for the entry point `apache_airflow_provider` of Dapple's wheel.

Airflow asks while it reads its own configuration. So nothing of Airflow may be imported here.
"""


def get_provider_info():
    """Returns the entry in `airflow providers list`."""
    return {
        "package-name": "dapple-dp",
        "name": "Dapple",
        "description": "Differentially private clustering with Apache Beam",
    }
