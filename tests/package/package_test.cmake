# Run with `cmake -P`. Builds the project in consumer/ against an install tree or against the source tree.
cmake_minimum_required(VERSION 3.23)

function(do)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${work}")
file(MAKE_DIRECTORY "${work}")

set(options "-Dway=${way}" "-Dexpected_version=${version}" "-DCMAKE_CXX_COMPILER=${compiler}")
if(way STREQUAL "installed")
  # Moved after the installation: an install tree must not remember where it was made.
  do("${CMAKE_COMMAND}" --install "${build}" --prefix "${work}/first")
  file(RENAME "${work}/first" "${work}/prefix")
  list(APPEND options "-DCMAKE_PREFIX_PATH=${work}/prefix")
else()
  list(APPEND options "-Ddeepum_source=${source}")
endif()

do("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${work}/build" -G "${generator}" ${options})
do("${CMAKE_COMMAND}" --build "${work}/build")
do("${work}/build/consumer")
