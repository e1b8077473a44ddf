#include <deepum/deepum.hpp>

#include <string_view>

std::string_view version_seen_by_second();
std::string_view version_seen_by_second() { return deepum::version; }

bool policies_are_made_by_second();
bool policies_are_made_by_second() { return deepum::make_policy("auto") != nullptr; }
