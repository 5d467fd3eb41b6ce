"""Package metadata, all of it; also what Beam's `--setup_file ./setup.py` builds for remote workers."""

import pathlib

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).resolve().parent
BEAM = ">=2.76.0,<2.78"
INSTALL_REQUIRES = [
    f"apache-beam{BEAM}",
    "click>=8.1.8,<9",
    "cryptography>=43",
    "dp-accounting>=0.6,<0.7",
    "jinja2>=3.1",
    "numpy>=2.1,<2.5",
    "pipeline-dp>=0.3.1,<0.4",
    "pyarrow>=24,<26",
    "pydantic>=2.11,<3",
    "PyYAML>=6.0.2,<7",
    "rich>=13.7",
    "joblib>=1.4",
    "scikit-learn>=1.6",
    "scipy>=1.14",
    "threadpoolctl>=3.5",
]
CLOUD_REQUIRES = {
    "aws": [f"apache-beam[aws]{BEAM}"],
    "azure": [f"apache-beam[azure]{BEAM}"],
    "gcp": [f"apache-beam[gcp]{BEAM}"],
    "hdfs": [f"apache-beam[hadoop]{BEAM}"],
}
DELTA_REQUIRES = ["deltalake>=1.6,<2"]
JAX_REQUIRES = ["jax>=0.8"]
ICEBERG_REQUIRES = ["pyiceberg[pyarrow]>=0.12,<0.13"]
KAFKA_REQUIRES = ["confluent-kafka>=2.12,<3"]
TEST_REQUIRES = [
    *DELTA_REQUIRES,
    *ICEBERG_REQUIRES,
    *KAFKA_REQUIRES,
    "boto3>=1.40",
    "flask-cors>=6",
    "hypothesis>=6.100",
    "moto[s3]>=5.2",
    "mypy>=1.11",
    "opendp>=0.14",
    "pandas>=2.2",
    "prv-accountant>=0.2",
    "pyiceberg[sql-sqlite]",
    "pytest>=8.2",
    "ruff>=0.9",
]
EXTRAS = {
    "delta": DELTA_REQUIRES,
    "iceberg": ICEBERG_REQUIRES,
    "jax": JAX_REQUIRES,
    "kafka": KAFKA_REQUIRES,
    "test": TEST_REQUIRES,
}
TOPS = ("dapple_dp", "schemas", "transforms", "pipelines")
PACKAGES = find_packages(include=[each for top in TOPS for each in (top, f"{top}.*")])

setup(
    name="dapple-dp",
    version="0.1.0",
    description="Differentially private federated clustering on Apache Beam",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The Dapple contributors",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["differential privacy", "clustering", "k-means", "federated learning", "Apache Beam", "Parquet"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Security",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.14",
    # Dapple imports none of the files of `schedule/`; they come along as a folder of the public package.
    packages=[*PACKAGES, "dapple_dp.schedule"],
    package_dir={"dapple_dp.schedule": "schedule"},
    package_data={
        **{top: ["py.typed"] for top in TOPS},
        "dapple_dp": ["py.typed", "__init__.pyi"],
        "dapple_dp.schedule": ["*"],
        "pipelines.page": ["templates/*.html.j2", "templates/*.css"],
        "schemas": ["py.typed", "json/*.json"],
    },
    install_requires=INSTALL_REQUIRES,
    extras_require={**CLOUD_REQUIRES, **EXTRAS},
    entry_points={
        "console_scripts": ["dapple = dapple_dp.command:main"],
        "apache_airflow_provider": ["provider_info = dapple_dp.schedule.airflow_provider:get_provider_info"],
    },
)
