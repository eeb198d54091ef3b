"""The recipe of Spack."""

from spack.package import *


class Outgrid(PythonPackage):
    """Stencil computations on grids that outgrow memory."""

    license("Apache-2.0")

    version("main", branch="main")

    depends_on("cxx", type=("build", "run"))  # kernels are compiled where they run
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-scikit-build-core@0.10:", type="build")
    depends_on("py-nanobind@2.4:", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("ninja", type="build")
    depends_on("liburing", type=("build", "link"))
    depends_on("xxhash", type="build")

    depends_on("py-matplotlib@3.8:", type=("build", "run"))
    depends_on("py-msgspec@0.18.5:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-xxhash@3.4:", type=("build", "run"))

    def config_settings(self, spec, prefix):
        return {"cmake.define.OUTGRID_NEEDS_URING": "ON"}
