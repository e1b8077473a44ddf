#!/usr/bin/env bash
# conan create: the package and its test_package, with a Conan that is installed here for it. Then the recipe by name.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

python3 -m venv "$WORK/venv" || skip "no venv module for this python3 (package python3-venv)"
"$WORK/venv/bin/pip" install -q --retries 2 'conan>=2.0,<3' || skip "no package index of Python to install Conan from"
conan=$WORK/venv/bin/conan
export CONAN_HOME=$WORK/conan CUDA CXX=$COMPILER

"$conan" profile detect
"$conan" create "$SOURCE/packaging/conan" --no-remote -c "tools.cmake.cmake_layout:test_folder=$WORK/test_package"

# As a user's project has it, with the version that the header says.
mkdir "$WORK/user"
cat >"$WORK/user/conanfile.txt" <<TEXT
[requires]
deepum/[~${VERSION%.*}]
[generators]
CMakeDeps
CMakeToolchain
TEXT
"$conan" install "$WORK/user" --no-remote --output-folder "$WORK/user"
toolchain=$(find "$WORK/user" -name conan_toolchain.cmake)
configure user/build -Droute=find "-DCMAKE_TOOLCHAIN_FILE=$toolchain" -DCMAKE_BUILD_TYPE=Release "${kernels[@]}"
build_and_run user/build
