# Install tree and package files, so that `find_package(deepum)` works from any prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(deepum_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/deepum")

install(TARGETS deepum EXPORT deepumTargets FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT deepumTargets NAMESPACE deepum:: DESTINATION "${deepum_package_dir}")

configure_package_config_file(cmake/deepumConfig.cmake.in "${PROJECT_BINARY_DIR}/deepumConfig.cmake"
                              INSTALL_DESTINATION "${deepum_package_dir}")
# Before 1.0 a minor version may break its users. Headers do not depend on the pointer size of who installed them.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/deepumConfigVersion.cmake" COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/deepumConfig.cmake" "${PROJECT_BINARY_DIR}/deepumConfigVersion.cmake"
        DESTINATION "${deepum_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/deepum")
