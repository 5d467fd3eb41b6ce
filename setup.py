"""Package metadata, all of it; also what Beam's `--setup_file ./setup.py` builds for remote workers.

`python setup.py build_ext --inplace` builds the kernel of `transforms/numerics/kernel` beside its sources, as does an
installation where there is a C compiler.
"""

import hashlib
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
# Two builds of one source are one wheel, whenever and wherever it is built.
os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")
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
    "joblib>=1.4",
    "scikit-learn>=1.6",
    "scipy>=1.14",
    "threadpoolctl>=3.5",
]
OBSTORE = "obstore>=0.12,<0.13"
CLOUD_REQUIRES = {
    "aws": [f"apache-beam[aws]{BEAM}", OBSTORE],
    "azure": [f"apache-beam[azure]{BEAM}"],
    "gcp": [f"apache-beam[gcp]{BEAM}"],
    "hdfs": [f"apache-beam[hadoop]{BEAM}"],
}
DELTA_REQUIRES = ["deltalake>=1.6,<2"]
ICEBERG_REQUIRES = ["pyiceberg[pyarrow]>=0.12,<0.13"]
KAFKA_REQUIRES = ["confluent-kafka>=2.12,<3"]
PLOT_REQUIRES = ["matplotlib>=3.9"]
POSTGRES_REQUIRES = ["psycopg[binary]>=3.2,<4"]
TEST_REQUIRES = [
    *DELTA_REQUIRES,
    *ICEBERG_REQUIRES,
    *KAFKA_REQUIRES,
    *PLOT_REQUIRES,
    *POSTGRES_REQUIRES,
    "boto3>=1.40",
    OBSTORE,
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
    "kafka": KAFKA_REQUIRES,
    "plot": PLOT_REQUIRES,
    "postgres": POSTGRES_REQUIRES,
    "test": TEST_REQUIRES,
}
HOUSE = ("schemas", "transforms", "pipelines")
"""Folders beside `dapple_dp` that are imported as its packages; its links of these names are for type checkers."""
PACKAGES = find_packages(include=["dapple_dp", "dapple_dp.*"], exclude=[f"dapple_dp.{top}*" for top in HOUSE])
PACKAGES += [f"dapple_dp.{each}" for top in HOUSE for each in find_packages(include=[top, f"{top}.*"])]
KERNEL = "dapple_dp.transforms.numerics.kernel._rows"
KERNEL_SOURCES = sorted((ROOT / "transforms" / "numerics" / "kernel").glob("*.c"))
# One by one, never -ffast-math: that would switch off small numbers in the whole process. What is divided, rooted or
# truncated is in a file of its own, which is compiled without contraction.
KERNEL_FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-fopenmp-simd", "-fno-math-errno"]
KERNEL_FLAGS += ["-fno-trapping-math", "-Wall", "-Wno-psabi"]
CONTRACTION = {"lattice.c": "off", "rows.c": "fast", "scatter.c": "fast"}


def compilers() -> list[list[str]]:
    """Words that start C compilers, best first: what CC names, `cc`, and that of the package `ziglang`."""
    named = shlex.split(os.environ.get("CC", ""))
    found = [named] if named else []
    found += [["cc"]] if shutil.which("cc") else []
    zig = [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=all"]
    return found + ([zig] if importlib.util.find_spec("ziglang") else [])


def compile_kernel(compiler: list[str], target: pathlib.Path) -> None:
    """Builds the kernel as a shared library; raises OSError or subprocess.SubprocessError."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in KERNEL_SOURCES)).hexdigest()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        objects = [str(pathlib.Path(folder) / f"{path.stem}.o") for path in KERNEL_SOURCES]
        for path, made in zip(KERNEL_SOURCES, objects, strict=True):
            own = [f"-ffp-contract={CONTRACTION[path.name]}", f'-DDAPPLE_SOURCES="{digest}"']
            # By its name alone, so that the folder is no part of what is built.
            subprocess.run([*compiler, *KERNEL_FLAGS, *own, "-c", path.name, "-o", made], cwd=path.parent, check=True)
        subprocess.run([*compiler, *KERNEL_FLAGS, "-shared", "-s", *objects, "-o", str(target), "-lm"], check=True)


class BuildKernel(build_ext):
    """Builds the kernel if some compiler can; without it NumPy gives the same numbers."""

    def get_ext_filename(self, fullname: str) -> str:
        """No version of Python is part of the name."""
        return f"{fullname.replace('.', '/')}.so"

    def build_extension(self, ext: Extension) -> None:
        """Tries each compiler."""
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        target.unlink(missing_ok=True)
        for compiler in compilers():
            try:
                return compile_kernel(compiler, target)
            except (OSError, subprocess.SubprocessError):
                target.unlink(missing_ok=True)
        sys.stdout.write("dapple: no C compiler works here (cc, or ziglang), so NumPy does the work of the kernel.\n")


class PlatformWheel(bdist_wheel):
    """A wheel with the kernel is for all versions of Python on its platform; one without it, for all platforms."""

    def get_tag(self) -> tuple[str, str, str]:
        """Looks whether the kernel was built."""
        built = pathlib.Path(self.get_finalized_command("build_ext").get_ext_fullpath(KERNEL))
        return "py3", "none", super().get_tag()[2] if built.exists() else "any"


setup(
    name="dapple-dp",
    version="0.3.0",
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
    package_dir={f"dapple_dp.{folder}": folder for folder in (*HOUSE, "schedule")},
    package_data={
        "dapple_dp": ["py.typed", "__init__.pyi"],
        "dapple_dp.schedule": ["*"],
        "dapple_dp.pipelines.page": ["templates/*.html.j2", "templates/*.css"],
        "dapple_dp.transforms.numerics.kernel": ["*.c"],
    },
    ext_modules=[Extension(KERNEL, [str(path.relative_to(ROOT)) for path in KERNEL_SOURCES], optional=True)],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": PlatformWheel},
    install_requires=INSTALL_REQUIRES,
    extras_require={**CLOUD_REQUIRES, **EXTRAS},
    entry_points={
        "console_scripts": ["dapple = dapple_dp.command:main"],
        "apache_airflow_provider": ["provider_info = dapple_dp.schedule.airflow_provider:get_provider_info"],
    },
)
