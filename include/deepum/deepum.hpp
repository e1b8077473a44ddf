#pragma once

// Everything that needs no CUDA.

#include <deepum/arena.hpp>
#include <deepum/dim.hpp>
#include <deepum/error.hpp>
#include <deepum/host_view.hpp>
#include <deepum/operand.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/mapped_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>
#include <deepum/version.hpp>
