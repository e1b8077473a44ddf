import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load
from conan.tools.scm import Version

required_conan_version = ">=2.0"


class Deepum(ConanFile):
    """The headers, the source of the kernel helper, and the CMake and pkg-config files of every other route."""

    name = "deepum"
    description = "Use more memory than the GPU has, at close to the speed of the link"
    license = "Apache-2.0"
    topics = ("cuda", "gpu", "unified-memory", "oversubscription", "prefetching", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "..", "..", "include", "deepum", "version.hpp"))
        parts = re.findall(r"^#define DEEPUM_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE)
        self.version = ".".join(parts)

    def export_sources(self):
        source = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "kernel-helper/*"):
            copy(self, pattern, source, self.export_sources_folder)

    def layout(self):
        self.folders.build = "build"
        self.folders.generators = "build/generators"

    def validate(self):
        oldest = {"gcc": "12", "clang": "16"}.get(str(self.settings.compiler))
        if oldest and Version(self.settings.compiler.version) < oldest:
            raise ConanInvalidConfiguration(
                f"deepum needs {self.settings.compiler} {oldest} or later, not {self.settings.compiler.version}"
            )

    def package_id(self):
        self.info.clear()  # one package serves every machine

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("DEEPUM_BUILD_TESTS", "DEEPUM_BUILD_EXAMPLES", "DEEPUM_BUILD_BENCH"):
            toolchain.cache_variables[option] = "OFF"
        toolchain.cache_variables["DEEPUM_CUDA"] = "OFF"  # the package is the same; its user looks for CUDA
        toolchain.cache_variables["CMAKE_INSTALL_DATADIR"] = "share"
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # The package's own deepumConfig.cmake is used, so that components mean the same as everywhere.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "deepum")]
        # For generators of other build systems: the library alone.
        self.cpp_info.set_property("pkg_config_name", "deepum")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.get_safe("os") in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
