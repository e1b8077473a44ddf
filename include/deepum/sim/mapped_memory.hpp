#pragma once

// The old name of this header, for one version.
#include <deepum/sim/paged_memory.hpp>
