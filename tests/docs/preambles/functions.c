/* Functions of a program. */
#include <stdint.h>

// the block
