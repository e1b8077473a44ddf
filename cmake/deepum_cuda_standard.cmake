# CMake before 3.25.2 does not know that nvcc has a flag for C++20, and refuses .cu files where a project requires its
# standard (CMAKE_CXX_STANDARD_REQUIRED, as Conan's toolchain does). In the cache, since any folder of the project may have
# such files; where CMake knows better, its own variables hide these. Read by this source tree and by its packages.
if(CMAKE_VERSION VERSION_LESS 3.25.2)
  foreach(deepum_kind IN ITEMS STANDARD EXTENSION)
    if(NOT DEFINED CMAKE_CUDA20_${deepum_kind}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${deepum_kind}_COMPILE_OPTION -std=c++20 CACHE INTERNAL "nvcc's flag for C++20")
    endif()
  endforeach()
  unset(deepum_kind)
endif()
