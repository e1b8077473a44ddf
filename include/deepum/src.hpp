#pragma once

/// @file
/// The parts of the library that can be compiled once instead of in every source file: the policies, two thirds of what
/// an arena costs to compile. Define DEEPUM_SEPARATE_COMPILATION for the whole program, and include this file in one of
/// its source files. The CMake target `deepum::compiled` does both.

#ifndef DEEPUM_SEPARATE_COMPILATION
#error "<deepum/src.hpp> is for programs that are compiled with DEEPUM_SEPARATE_COMPILATION, all their files"
#endif

#include <deepum/policy/policies.hpp>
