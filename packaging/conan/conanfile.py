"""Conan's recipe of the libraries shardwise::shardwise and shardwise::loader.

    conan create packaging/conan -s compiler.cppstd=20 --build=missing

The test package is tests/packaging/consumer. docs/build.md says with which libraries this was tried.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.gnu import PkgConfigDeps

required_conan_version = ">=2.4"

HEADERS_ONLY = {"boost": "[>=1.74 <2]", "nlohmann_json": "[>=3.9 <4]", "xxhash": "[>=0.8 <1]"}
"""Libraries of which only headers are used, and not by the public headers."""
CORE = {
    "bzip2": "[>=1.0.8 <2]",
    "libarchive": "[>=3.6 <4]",
    "libcurl": "[>=7.81 <9]",
    "lz4": "[>=1.9 <2]",
    "openssl": "[>=3 <4]",
    "sqlite3": "[>=3.40 <4]",
    "xz_utils": "[>=5.4 <6]",
    "zlib": "[>=1.2.11 <2]",
    "zstd": "[>=1.5 <2]",
}
LOADER = {
    "highway": "[>=1.0.3 <2]",
    "libjpeg-turbo": "[>=2.1 <4]",
    "libpng": "[>=1.6 <2]",
    "libwebp": "[>=1.2 <2]",
}


class ShardwiseConan(ConanFile):
    name = "shardwise"
    description = "Indexed random access to WebDataset tar shards with exact epochs"
    license = "BSD-3-Clause"
    topics = ("webdataset", "data-loading", "machine-learning", "reproducibility")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False]}
    default_options = {"shared": False, "fPIC": True, "boost/*:header_only": True}
    implements = ["auto_shared_fpic"]

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):  # the one place of the version
        project = load(self, os.path.join(self._root, "CMakeLists.txt"))
        self.version = re.search(r"^project\(shardwise VERSION (\S+) ", project, re.MULTILINE).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"):
            copy(self, pattern, self._root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux" or self.settings.arch != "x86_64":
            raise ConanInvalidConfiguration("Shardwise was tested on Linux on x86-64 only")

    def requirements(self):
        for name, versions in HEADERS_ONLY.items():
            self.requires(f"{name}/{versions}", visible=False)
        for name, versions in (CORE | LOADER).items():
            self.requires(f"{name}/{versions}")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.21]")
        self.tool_requires("pkgconf/[>=1.8 <3]")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update(
            {"SHARDWISE_BUILD_TOOLS": False, "SHARDWISE_WITH_LIBTORCH": False, "SHARDWISE_WITH_VIDEO": False}
        )
        for dependency in self.dependencies.host.values():
            if dependency.ref.name in ("lz4", "zstd"):  # linked by name, not by a target of CMake
                folders = dependency.cpp_info.aggregated_components().libdirs
                toolchain.extra_sharedlinkflags += [f"-L{folder}" for folder in folders]
        toolchain.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        cmake = CMake(self)
        for component in ("core", "core-dev"):
            cmake.install(component=component)
        for folder in ("cmake", "pkgconfig"):  # Conan makes these files
            rmdir(self, os.path.join(self.package_folder, "lib", folder))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "shardwise")
        core = self.cpp_info.components["core"]
        core.set_property("cmake_target_name", "shardwise::shardwise")
        core.set_property("pkg_config_name", "shardwise")
        core.libs = ["shardwise"]
        core.defines = [f'SHARDWISE_VERSION="{self.version}"']
        core.system_libs = ["pthread"]
        core.requires = [f"{name}::{name}" for name in CORE if name not in ("libcurl", "openssl")]
        core.requires += ["libcurl::curl", "openssl::crypto"]
        loader = self.cpp_info.components["loader"]
        loader.set_property("cmake_target_name", "shardwise::loader")
        loader.set_property("pkg_config_name", "shardwise-loader")
        loader.libs = ["shardwise_loader"]
        loader.requires = ["core", "highway::hwy", "libjpeg-turbo::jpeg", "libpng::libpng", "libwebp::webp"]
