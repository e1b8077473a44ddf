// Compiled with -Wshadow -Werror by the test headers.common_names.
#include "common_names.hpp"

#include <deepum/deepum.hpp>

#include <cstddef>
#include <cstdint>

// Brings templates to life, and with them what is said only then.
namespace in_use {

const deepum::sim::kernel half([](float* to_these, const float* from_these) { to_these[0] = from_these[0] / 2; },
                               [](deepum::sim::work& does, float* to_these, const float* from_these) {
                                 does.reads(from_these, 4);
                                 does.updates(to_these, 4);
                               });

const deepum::sim::kernel quarter([](const deepum::grid_slice& where, float* here) { here[where.begin.x] /= 4; },
                                  [](deepum::sim::work& does, const deepum::grid_slice& where, float* here) {
                                    does.updates(here + where.begin.x, 4);
                                  });
const deepum::sim::kernel third([](float* here, std::size_t how_many) { here[how_many - 1] /= 3; },
                                [](deepum::sim::work& does, float* here, std::size_t how_many) {
                                  does.updates(here, how_many * 4);
                                });

template <class Memory>
void use(deepum::sim::device& my_gpu) {
  deepum::arena<Memory> my_arena(my_gpu, {.device_budget = deepum::bytes(std::uint64_t{64} << 20)});
  deepum::stream<Memory> my_stream(my_arena);
  auto my_floats = my_arena.template make_array<float>(1024);
  auto my_copies = my_arena.template make_array<float>(1024);
  (void)my_stream.memset(my_floats.data(), 0, deepum::bytes(4096));
  (void)my_stream.memcpy(my_copies.data(), my_floats.data(), deepum::bytes(4096));
  my_stream.launch("half", 1, 32, 0, half, deepum::updates(my_copies.data(), 1024),
                   deepum::reads(my_floats.data(), 1024));
  my_stream.launch("quarter", 1024, 32, 0, deepum::sliced(quarter),
                   deepum::by_x(deepum::updates(my_copies.data(), 1024), 1));
  my_stream.launch_in_pieces("third", {.elements = 1024}, third, deepum::updates(my_copies.data(), 1024),
                             deepum::piece_size);
  const float mine[4] = {};
  my_stream.upload(my_floats.data(), mine, 4);
  (void)my_stream.upload(my_floats.data(), deepum::borrowed(mine), 4);
  my_arena.stream_in(my_floats.data(), 4).commit(0);
  my_stream.synchronize();
  const auto read_there = my_arena.host_read(my_copies.data(), 1024);
  (void)my_arena.host_write(my_floats.data(), 1024);
  (void)my_arena.statistics();
}
template void use<deepum::sim::managed_memory>(deepum::sim::device&);
template void use<deepum::sim::paged_memory>(deepum::sim::device&);

}  // namespace in_use

template class deepum::arena<deepum::sim::managed_memory>;
template class deepum::arena<deepum::sim::paged_memory>;
template class deepum::stream<deepum::sim::managed_memory>;
template class deepum::stream<deepum::sim::paged_memory>;
