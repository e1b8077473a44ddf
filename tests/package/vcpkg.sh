#!/usr/bin/env bash
# The port, by vcpkg itself where VCPKG_ROOT says that there is one; else its portfile is run with stand-ins for vcpkg's
# functions.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ports=$SOURCE/packaging/vcpkg
written=$(sed -nE 's/^ *"version-semver": "(.*)",$/\1/p' "$ports/deepum/vcpkg.json")
[[ $written == "$VERSION" ]] || fail "packaging/vcpkg/deepum/vcpkg.json says version '$written', version.hpp $VERSION"

if [[ -n ${VCPKG_ROOT-} && -x $VCPKG_ROOT/vcpkg ]]; then
  "$VCPKG_ROOT/vcpkg" install deepum "--overlay-ports=$ports" "--x-install-root=$WORK/installed" --binarysource=clear
  prefix=$(echo "$WORK"/installed/*/share/deepum)
  prefix=${prefix%/share/deepum}
else
  echo "no vcpkg (VCPKG_ROOT): its functions are replaced by stand-ins"
  "$CMAKE" "-Dport_dir=$ports/deepum" "-Dpackages=$WORK/packages" "-Dbuildtrees=$WORK/buildtrees" \
    "-Dgenerator=$GENERATOR" "-Dcompiler=$COMPILER" -P "$SOURCE/tests/package/vcpkg_standins.cmake"
  # vcpkg installs a package by moving it.
  prefix=$WORK/installed/x64-linux
  mkdir -p "$WORK/installed"
  mv "$WORK/packages" "$prefix"
fi

[[ -s $prefix/share/deepum/usage ]] || fail "no usage text"
configure build -Droute=find "-DCMAKE_PREFIX_PATH=$prefix" "${kernels[@]}" -DCMAKE_CXX_STANDARD_REQUIRED=ON
build_and_run build
if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$prefix/share/pkgconfig pkg-config --exists --print-errors "deepum = $VERSION"
fi
