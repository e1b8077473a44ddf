# The target deepum::compiled: the headers with what can be compiled once compiled once (<deepum/src.hpp>), by the project
# that links it. Read by this source tree and by its packages.
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/deepum_compiled.cpp" CONTENT "#include <deepum/src.hpp>\n")
add_library(deepum_compiled STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/deepum_compiled.cpp")
add_library(deepum::compiled ALIAS deepum_compiled)
target_link_libraries(deepum_compiled PUBLIC deepum::deepum)
target_compile_definitions(deepum_compiled PUBLIC DEEPUM_SEPARATE_COMPILATION)
set_target_properties(deepum_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
