#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>
#include <deepum/policy/policy.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace long_work_test {

using namespace deepum;

struct work final : long_work {
  explicit work(std::function<void()> what) : does(std::move(what)) {}
  void run() override { does(); }

  std::function<void()> does;
};

// Has so much to work out before its first plan.
struct script {
  int pieces = 0;
  std::function<void()> does{};
  std::string said{};
};

class thoughtful_policy final : public policy {
 public:
  explicit thoughtful_policy(script& s) : script_(s) {}
  [[nodiscard]] std::string_view name() const override { return "thoughtful"; }
  [[nodiscard]] std::unique_ptr<long_work> begin_work(const block_map&) override {
    if (script_.pieces == 0) {
      return nullptr;
    }
    --script_.pieces;
    script_.said += "begin ";
    return std::make_unique<work>([this] {
      script_.said += "run ";
      script_.does();
    });
  }
  void end_work(std::unique_ptr<long_work> done, const block_map&) override {
    script_.said += done != nullptr ? "end " : "lost ";
  }
  void on_dead(block_range, launch_id, const block_map&) override { script_.said += "dead "; }
  void plan_next(const block_map&, plan&) override { script_.said += "plan "; }
  [[nodiscard]] policy_statistics statistics() const override { return {}; }

 private:
  script& script_;
};

TEST_CASE("what a policy works out is run without the state lock, and comes back before it plans") {
  deepum_test::fake_memory memory(8);
  script s;
  engine made(memory, std::make_unique<thoughtful_policy>(s), {.budget = block_size * 8, .log = {}});
  CHECK(made.live({block_id{0}, 8}));
  made.pump();
  s.said.clear();

  s.pieces = 2;
  bool first = true;
  s.does = [&] {
    (void)made.snapshot();  // takes the state lock
    if (std::exchange(first, false)) {
      made.dead({block_id{0}, 1}, liveness::inactive, {});  // a fact in the meantime is heard before the plan
    }
  };
  made.set_budget(block_size * 4);
  made.pump();
  CHECK(s.said == "begin run dead end begin run end plan ");
}

}  // namespace long_work_test
