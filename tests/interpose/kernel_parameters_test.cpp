#include <deepum/interpose/kernel_parameters.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace kernel_parameters {

using namespace deepum::interpose;
using flags = std::vector<bool>;

TEST_CASE("pointers to const are told by the mangled name") {
  CHECK(only_read_parameters("_Z5scalePfPKffi") == flags{false, true, false, false});
  CHECK(only_read_parameters("_Z1kPKvS0_Pv") == flags{true, true, false});
  CHECK(only_read_parameters("_Z1kv").empty());
}

TEST_CASE("what a pointer to const points to may be written through other pointers, and stays what it is") {
  CHECK(only_read_parameters("_Z1kPPKf") == flags{false});    // pointer to pointers: the pointers may be written
  CHECK(only_read_parameters("_Z1kPKPf") == flags{true});     // the pointers are read, what they point to is not named
  CHECK(only_read_parameters("_Z1kPA4_Kf") == flags{false});  // of arrays: not looked at
}

TEST_CASE("commas of templates and functions do not part parameters") {
  // void k<pair<int, float>>(pair<int, float> const*, void (*)(int, float), float*)
  CHECK(only_read_parameters("_Z1kI4pairIifEEvPKT_PFvifEPf") == flags{true, false, false});
}

TEST_CASE("a name that tells no parameters makes none of them read") {
  CHECK(only_read_parameters("my_kernel").empty());
  CHECK(only_read_parameters("").empty());
  CHECK(only_read_parameters("_Znonsense").empty());
  const kernel_description k = describe_kernel("my_kernel", {{0, 8, false}}, true);
  CHECK_FALSE(k.parameters[0].only_read);
  CHECK(k.name == "my_kernel");
}

TEST_CASE("a name of another number of parameters than the driver tells makes none of them read") {
  const kernel_description k = describe_kernel("_Z1kPKf", {{0, 8, false}, {8, 8, false}}, true);
  CHECK_FALSE(k.parameters[0].only_read);
}

TEST_CASE("names for people have no parameters and an end") {
  CHECK(describe_kernel("_Z5scalePfPKffi", {}, true).name == "scale");
  CHECK(describe_kernel("_Z1kI4pairIifEEvPKT_PFvifEPf", {}, true).name == "k<pair<int, float> >");
  CHECK(describe_kernel("", {}, false).name == "kernel");
  CHECK(describe_kernel(std::string(500, 'x'), {}, true).name.size() == 96);
}

TEST_CASE("the packed arguments end with the last parameter") {
  CHECK(describe_kernel("k", {{0, 8, false}, {8, 8, false}, {16, 4, false}}, true).size() == 20);
  CHECK(describe_kernel("k", {}, true).size() == 0);
}

}  // namespace kernel_parameters
