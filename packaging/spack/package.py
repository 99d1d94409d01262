# Untested: nobody has built it with Spack yet. Copy it to packages/holdfast/package.py of a repository of recipes.
from spack.package import *


class Holdfast(CMakePackage, CudaPackage):
    """A SLURM-native launcher and runtime for training LLMs."""

    license("MIT")

    version("main", branch="main")

    variant("tools", default=True, description="holdfast-tool: verbs on data, checkpoints and models")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openmpi@4.1:")
    depends_on("pmix@4.2:")
    depends_on("ucx")
    depends_on("hdf5~mpi")
    depends_on("openblas")
    depends_on("cli11")
    depends_on("fmt")
    depends_on("spdlog+fmt_external")
    depends_on("nlohmann-json")
    depends_on("xxhash")
    depends_on("isa-l")
    with when("+cuda"):
        depends_on("cuda@12.5:")
        depends_on("cudnn@9:")
        depends_on("nccl@2.19:")

    generator("ninja")

    def setup_run_environment(self, env):
        env.append_path("PYTHONPATH", join_path(self.prefix.share, "holdfast", "python"))

    def cmake_args(self):
        return [
            self.define("HOLDFAST_TESTS", False),
            self.define_from_variant("HOLDFAST_TOOLS", "tools"),
            self.define("HOLDFAST_CUDA", "ON" if "+cuda" in self.spec else "OFF"),
        ]
