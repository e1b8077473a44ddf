// The policies are in the library, not in this file.
#include <deepum/policy/make_policy.hpp>

#include <cstdio>
#include <string_view>

int main() {
  for (const std::string_view name : deepum::policy_names()) {
    if (!deepum::make_policy(name)) {
      std::printf("compiled: no policy\n");
      return 1;
    }
  }
  std::printf("compiled: all policies\n");
  return 0;
}
