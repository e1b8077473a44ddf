// A tool that watches the driver, as its name says (libcupti...): deepum-run gives it the driver's own functions.

#define _GNU_SOURCE
#include <dlfcn.h>

void* profiler_look_up(void* driver, const char* symbol);

void* profiler_look_up(void* driver, const char* symbol) {
  void* volatile found = dlsym(driver, symbol);  // not as a jump, so that this library is the caller
  return found;
}
