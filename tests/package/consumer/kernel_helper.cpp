// The reader alone, called from C++. There is no CUDA in this program, so it has to say that it cannot be opened.
#include <deepum_uvm_events.h>

#include <cstdio>

int main() {
  deepum_uvm_events* events = nullptr;
  char why[256] = "";
  const deepum_uvm_options options{};
  const int code = deepum_uvm_events_open(&events, &options, why, sizeof why);
  std::printf("kernel_helper: %d, %s\n", code, why);
  return code != 0 && why[0] != '\0' ? 0 : 1;
}
