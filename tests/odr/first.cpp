#include <deepum/deepum.hpp>

#include <string_view>

std::string_view version_seen_by_second();
bool policies_are_made_by_second();

// Reached from both translation units: one definition, one value.
int main() {
  return deepum::version == version_seen_by_second() && deepum::make_policy("auto") && policies_are_made_by_second()
             ? 0
             : 1;
}
