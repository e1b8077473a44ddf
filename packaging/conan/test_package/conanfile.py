import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class DeepumTest(ConanFile):
    """The outside project that all routes are tested with, against the package."""

    settings = "os", "arch", "compiler", "build_type"
    test_type = "explicit"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        version = str(self.dependencies["deepum"].ref.version)
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["route"] = "find"
        toolchain.cache_variables["request"] = version.rpartition(".")[0]
        toolchain.cache_variables["expected_version"] = version
        toolchain.cache_variables["components"] = "core;kernel_helper" if self.settings.os == "Linux" else "core"
        toolchain.cache_variables["optional_components"] = "cuda"
        if os.environ.get("CUDA") == "1":
            toolchain.cache_variables["expect_cuda"] = "ON"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.path.join(self.recipe_folder, "../../../tests/package/consumer"))
        cmake.build()

    def test(self):
        if can_run(self):
            CMake(self).build(target="run")
