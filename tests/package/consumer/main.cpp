#include <deepum/version.hpp>
#if __has_include(<deepum/deepum.hpp>)
#include <deepum/deepum.hpp>
#endif

int main() { return deepum::version == EXPECTED_VERSION ? 0 : 1; }
