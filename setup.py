"""Package metadata, all of it; also what Beam's `--setup_file ./setup.py` builds for remote workers."""

from setuptools import find_packages, setup

INSTALL_REQUIRES = [
    "apache-beam==2.77.*",
    "cryptography>=43",
    "dp-accounting>=0.6,<0.7",
    "jinja2>=3.1",
    "matplotlib>=3.9",
    "numpy>=2.1,<2.5",
    "pipeline-dp>=0.3.1,<0.4",
    "pyarrow>=18,<26",
    "pydantic>=2.11,<3",
    "PyYAML>=6.0.2,<7",
    "rich>=13.7",
    "scikit-learn>=1.6",
    "scipy>=1.14",
    "threadpoolctl>=3.5",
]
DELTA_REQUIRES = ["deltalake>=1.6,<2"]
JAX_REQUIRES = ["jax>=0.8"]
ICEBERG_REQUIRES = ["pyiceberg[pyarrow]>=0.12,<0.13"]
TEST_REQUIRES = [
    *DELTA_REQUIRES,
    *ICEBERG_REQUIRES,
    "hypothesis>=6.100",
    "mypy>=1.11",
    "opendp>=0.14",
    "prv-accountant>=0.2",
    "pyiceberg[sql-sqlite]",
    "pytest>=8.2",
    "ruff>=0.9",
]

setup(
    name="dapple",
    version="0.1.0",
    description="Differentially private federated clustering on Apache Beam",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["schemas", "schemas.*", "transforms", "transforms.*", "pipelines", "pipelines.*"]),
    package_data={"pipelines.page": ["templates/*.html.j2", "templates/*.css"]},
    install_requires=INSTALL_REQUIRES,
    extras_require={"delta": DELTA_REQUIRES, "iceberg": ICEBERG_REQUIRES, "jax": JAX_REQUIRES, "test": TEST_REQUIRES},
    entry_points={"console_scripts": ["dapple = pipelines.__main__:main"]},
)
