#pragma once

// The old name of this header, for one version.
#include <deepum/cuda/paged_memory.hpp>
