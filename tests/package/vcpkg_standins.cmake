# Runs a portfile without vcpkg: cmake -Dport_dir=... -Dpackages=... -Dbuildtrees=... -P vcpkg_standins.cmake
# Each function does what vcpkg's own of that name does to a port of headers for release alone, and is as strict about
# what it is given.
cmake_minimum_required(VERSION 3.23)

get_filename_component(PORT "${port_dir}" NAME)
set(CURRENT_PACKAGES_DIR "${packages}")
set(CURRENT_BUILDTREES_DIR "${buildtrees}")
set(CURRENT_PORT_DIR "${port_dir}")

function(complete prefix)
  if(DEFINED ${prefix}_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "unknown arguments: ${${prefix}_UNPARSED_ARGUMENTS}")
  endif()
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  complete(arg)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${CURRENT_BUILDTREES_DIR}" -G "${generator}"
            "-DCMAKE_CXX_COMPILER=${compiler}" -DCMAKE_BUILD_TYPE=Release
            "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}"
            -DCMAKE_INSTALL_LIBDIR:STRING=lib -DCMAKE_INSTALL_BINDIR:STRING=bin
            -DCMAKE_ERROR_ON_ABSOLUTE_INSTALL_DESTINATION=ON -DBUILD_SHARED_LIBS=OFF ${arg_OPTIONS}
    OUTPUT_VARIABLE said ERROR_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS "${said}")
  if(said MATCHES "Manually-specified variables were not used.*DEEPUM")
    message(FATAL_ERROR "an option of the port is unknown to the library")
  endif()
endfunction()

function(vcpkg_cmake_install)
  if(ARGC)
    message(FATAL_ERROR "these stand-ins know of no arguments of vcpkg_cmake_install")
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${CURRENT_BUILDTREES_DIR}" --target install
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Moves the package's files to share/PORT, which is one level nearer to the prefix, and corrects their way to it.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  complete(arg)
  set(from "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}")
  set(to "${CURRENT_PACKAGES_DIR}/share/${PORT}")
  file(GLOB files "${from}/*")
  if(NOT files)
    message(FATAL_ERROR "nothing in ${from}")
  endif()
  file(COPY ${files} DESTINATION "${to}")
  file(REMOVE_RECURSE "${from}")
  get_filename_component(parent "${from}" DIRECTORY)
  if(parent MATCHES "/cmake$")
    file(REMOVE_RECURSE "${parent}")
  endif()

  set(up "get_filename_component\\(_IMPORT_PREFIX \"\\\${_IMPORT_PREFIX}\" PATH\\)")
  set(from_file "get_filename_component\\(_IMPORT_PREFIX \"\\\${CMAKE_CURRENT_LIST_FILE}\" PATH\\)")
  file(GLOB_RECURSE files "${to}/*.cmake")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    string(REGEX REPLACE "${from_file}(\n${up})*"
                         "get_filename_component(_IMPORT_PREFIX \"\${CMAKE_CURRENT_LIST_DIR}/../..\" ABSOLUTE)" text
                         "${text}")
    string(REGEX REPLACE "PACKAGE_PREFIX_DIR \"\\\${CMAKE_CURRENT_LIST_DIR}/[./]+\" ABSOLUTE"
                         "PACKAGE_PREFIX_DIR \"\${CMAKE_CURRENT_LIST_DIR}/../../\" ABSOLUTE" text "${text}")
    string(REPLACE "${CURRENT_PACKAGES_DIR}" "\${_IMPORT_PREFIX}" text "${text}")
    file(WRITE "${file}" "${text}")
  endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SKIP_CHECK" "" "")
  complete(arg)
  file(GLOB_RECURSE files "${CURRENT_PACKAGES_DIR}/*.pc")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    string(REPLACE "${CURRENT_PACKAGES_DIR}" "\${prefix}" text "${text}")
    file(WRITE "${file}" "${text}")
  endforeach()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  complete(arg)
  file(INSTALL ${arg_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}" RENAME copyright)
endfunction()

include("${port_dir}/portfile.cmake")

# What vcpkg looks for once a port is built.
if(NOT VCPKG_BUILD_TYPE STREQUAL "release")
  message(FATAL_ERROR "these stand-ins know of release builds alone")
endif()
if(NOT EXISTS "${packages}/share/${PORT}/copyright")
  message(FATAL_ERROR "no copyright file")
endif()
foreach(unwanted IN ITEMS lib bin debug share/cmake share/doc)
  if(EXISTS "${packages}/${unwanted}")
    message(FATAL_ERROR "a port of headers must not have ${unwanted}")
  endif()
endforeach()
file(GLOB_RECURSE files "${packages}/share/*.cmake" "${packages}/share/*.pc")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  foreach(path IN ITEMS "${packages}" "${buildtrees}" "${port_dir}")
    string(FIND "${text}" "${path}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names ${path}")
    endif()
  endforeach()
endforeach()
