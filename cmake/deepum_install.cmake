# Install tree and package files, so that `find_package(deepum)` works from any prefix and from this build tree, and
# pkg-config from any prefix. Nothing has to be built for it: what is compiled at all is compiled by the user's project.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(deepum_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/deepum")
set(deepum_kernel_helper_dir "${CMAKE_INSTALL_DATADIR}/deepum/kernel-helper")

# --- CMake ---
install(TARGETS deepum EXPORT deepumTargets FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT deepumTargets NAMESPACE deepum:: DESTINATION "${deepum_package_dir}")
export(EXPORT deepumTargets NAMESPACE deepum:: FILE "${PROJECT_BINARY_DIR}/deepumTargets.cmake")

# The two trees differ in where the source of the kernel helper is.
set(deepum_kernel_helper_source "${deepum_kernel_helper_dir}")
configure_package_config_file(cmake/deepumConfig.cmake.in "${PROJECT_BINARY_DIR}/package_files/deepumConfig.cmake"
                              INSTALL_DESTINATION "${deepum_package_dir}" PATH_VARS deepum_kernel_helper_source)
set(deepum_kernel_helper_source "${PROJECT_SOURCE_DIR}/kernel-helper")
configure_package_config_file(
  cmake/deepumConfig.cmake.in "${PROJECT_BINARY_DIR}/deepumConfig.cmake" INSTALL_PREFIX "${PROJECT_BINARY_DIR}"
  INSTALL_DESTINATION "${PROJECT_BINARY_DIR}" PATH_VARS deepum_kernel_helper_source)
# Before 1.0 a minor version may break its users. Headers do not depend on the pointer size of who installed them.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/deepumConfigVersion.cmake" COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/package_files/deepumConfig.cmake" "${PROJECT_BINARY_DIR}/deepumConfigVersion.cmake"
        DESTINATION "${deepum_package_dir}")
foreach(name IN ITEMS deepum_compiled_target deepum_cuda_standard)
  configure_file(cmake/${name}.cmake "${PROJECT_BINARY_DIR}/${name}.cmake" COPYONLY)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/${name}.cmake" DESTINATION "${deepum_package_dir}")
endforeach()

# --- The kernel helper, as source ---
install(
  FILES "${PROJECT_SOURCE_DIR}/kernel-helper/CMakeLists.txt" "${PROJECT_SOURCE_DIR}/kernel-helper/README.md"
        "${PROJECT_SOURCE_DIR}/kernel-helper/deepum_uvm_events.c" "${PROJECT_SOURCE_DIR}/kernel-helper/deepum_uvm_events.h"
  DESTINATION "${deepum_kernel_helper_dir}")

# --- pkg-config. The files name no prefix but the way to it from where they are. ---
set(deepum_pc_dir "${CMAKE_INSTALL_DATADIR}/pkgconfig")
file(RELATIVE_PATH deepum_pc_prefix "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" deepum_pc_prefix "${deepum_pc_prefix}")
foreach(name IN ITEMS includedir kernel_helper)
  set(deepum_pc_${name} "\${prefix}")
endforeach()
cmake_path(APPEND deepum_pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")  # an absolute directory replaces the prefix
cmake_path(APPEND deepum_pc_kernel_helper "${deepum_kernel_helper_dir}")
foreach(name IN ITEMS deepum deepum-cuda)
  configure_file(cmake/${name}.pc.in "${PROJECT_BINARY_DIR}/package_files/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package_files/${name}.pc" DESTINATION "${deepum_pc_dir}")
endforeach()

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/deepum")
