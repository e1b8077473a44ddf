/* The face for C: what it says of a wrong call needs no GPU. */
#include <deepum/deepum.h>

#include <string.h>

int main(void) {
  deepum_arena_options options = DEEPUM_DEFAULT_OPTIONS;
  if (deepum_arena_create(&options, NULL) != DEEPUM_INVALID_ARGUMENT) {
    return 1;
  }
  return strstr(deepum_last_error(), "made is NULL") != NULL ? 0 : 1;
}
