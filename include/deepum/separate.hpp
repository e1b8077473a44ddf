#pragma once

#include <deepum/cxx20.hpp>

// Whether what need not be a template is compiled in every source file that includes it, as headers are, or once for a
// whole program: with DEEPUM_SEPARATE_COMPILATION, in the files that include <deepum/src.hpp> and
// <deepum/cuda/src.hpp>. A header `x.hpp` then declares, and `impl/x.hpp` beside it defines.

#ifdef DEEPUM_SEPARATE_COMPILATION
#define DEEPUM_SEPARATE  // in front of such definitions
#else
#define DEEPUM_SEPARATE inline
#endif
