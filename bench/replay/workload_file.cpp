// The text form of a workload.
#include "json_lines.hpp"
#include "workload.hpp"
#include <deepum/error.hpp>

#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

namespace deepum::replay {
namespace {

class parser {
 public:
  parser(std::string_view source, std::string_view text) : source_(source) {
    for_each_line(source, text, [&](const json_line& line) {
      last_line_ = line.number();
      if (!header_seen_) {
        read_header(line);
      } else if (line.has("tensor") && line.has("kernel")) {
        line.refuse("both a tensor and a launch");
      } else if (line.has("tensor")) {
        read_tensor(line);
      } else if (line.has("kernel")) {
        read_launch(line);
      } else {
        line.refuse("neither a tensor nor a launch");
      }
    });
    if (!header_seen_) {
      refuse_line(source_, 1, "empty; a workload begins with its header");
    }
    if (result_.launches.empty()) {
      refuse_line(source_, last_line_, "the file ends without a launch");
    }
    compare_counts();
  }

  [[nodiscard]] workload_description take() { return std::move(result_); }
  [[nodiscard]] std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  void read_header(const json_line& line) {
    if (!line.has("deepum_workload")) {
      line.refuse("not a workload: the header lacks \"deepum_workload\"");
    }
    if (line.at("deepum_workload") != 1) {
      line.refuse("version " + line.at("deepum_workload").dump() + " of the format; only version 1 is known");
    }
    result_.name = line.has("name") ? line.string("name") : std::string(source_);
    const auto stated = [&](const char* key) -> std::optional<std::uint64_t> {
      return line.has(key) ? std::optional(line.whole(key, std::numeric_limits<std::uint32_t>::max())) : std::nullopt;
    };
    stated_launches_ = stated("kernels");
    stated_tensors_ = stated("tensors");
    header_seen_ = true;
  }

  static std::int64_t tensor_id(const json_line& line, const nlohmann::json& value, const char* what) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > max_tensor_id)) {
      line.refuse(std::string(what) + " names a tensor by something else than a whole number");
    }
    return value.get<std::int64_t>();
  }

  void read_tensor(const json_line& line) {
    described_tensor t;
    t.id = tensor_id(line, line.at("tensor"), "tensor");
    t.size = bytes{line.whole("bytes", address_limit)};
    if (line.has("addr")) {
      t.address = bytes{line.whole("addr", address_limit)};
    }
    if (line.has("persistent")) {
      if (!line.at("persistent").is_boolean()) {
        line.refuse("\"persistent\" is neither true nor false");
      }
      t.persistent = line.at("persistent").get<bool>();
    }
    if (line.has("free_after")) {
      t.freed_after = static_cast<std::uint32_t>(line.whole("free_after", std::numeric_limits<std::uint32_t>::max()));
    }
    if (!seen_.insert(t.id).second) {
      line.refuse("tensor " + std::to_string(t.id) + " is there twice");
    }
    t.line = line.number();
    result_.tensors.push_back(t);
  }

  static std::vector<std::int64_t> read_ids(const json_line& line, const char* key) {
    const nlohmann::json& value = line.at(key);
    if (!value.is_array()) {
      line.refuse(std::string(key) + " is not a list");
    }
    std::vector<std::int64_t> ids;
    ids.reserve(value.size());
    for (const nlohmann::json& id : value) {
      ids.push_back(tensor_id(line, id, key));
    }
    return ids;
  }

  static std::vector<std::uint32_t> read_blocks(const json_line& line, const nlohmann::json& value) {
    if (!value.is_array()) {
      line.refuse("\"blocks\" mixes lists of blocks with something else");
    }
    std::vector<std::uint32_t> list;
    list.reserve(value.size());
    for (const nlohmann::json& b : value) {
      list.push_back(static_cast<std::uint32_t>(line.whole(b, "blocks", std::numeric_limits<std::uint32_t>::max())));
    }
    return list;
  }

  void read_launch(const json_line& line) {
    described_launch launch;
    launch.line = line.number();
    launch.kernel = line.string("kernel");
    // Derived workloads may carry fractions; a launch never takes less than it says.
    const double ns = std::ceil(line.number("ns"));
    if (ns > longest_launch_ns) {
      line.refuse("\"ns\" is more than a day");
    }
    launch.duration = nanoseconds{static_cast<std::int64_t>(ns)};
    launch.in = read_ids(line, "in");
    launch.out = read_ids(line, "out");
    if (line.has("blocks")) {
      const nlohmann::json& blocks = line.at("blocks");
      if (!blocks.is_object()) {
        line.refuse("\"blocks\" is not an object of lists");
      }
      for (const auto& [name, value] : blocks.items()) {
        const std::int64_t id = tensor_named(line, name, "blocks");
        described_launch::lists& lists = launch.blocks[id];
        if (!lists.empty()) {
          line.refuse("\"blocks\" names tensor " + std::to_string(id) + " twice");
        }
        if (value.is_array() && !value.empty() && value.front().is_array()) {
          for (const nlohmann::json& list : value) {
            lists.push_back(read_blocks(line, list));
          }
        } else {
          lists.push_back(read_blocks(line, value));
        }
      }
    }
    read_touched(line, launch);
    if (line.has("layer")) {
      launch.layer = read_layer(line);
    }
    result_.launches.push_back(std::move(launch));
  }

  static void read_touched(const json_line& line, described_launch& launch) {
    if (!line.has("touched")) {
      return;
    }
    const nlohmann::json& touched = line.at("touched");
    if (!touched.is_object()) {
      line.refuse("\"touched\" is not an object of rows by tensor");
    }
    for (const auto& [name, value] : touched.items()) {
      const std::int64_t id = tensor_named(line, name, "touched");
      if (!value.is_object() || !value.contains("row_bytes") || !value.contains("rows")) {
        line.refuse("\"touched\" of tensor " + name + " lacks \"row_bytes\" or \"rows\"");
      }
      described_rows& rows = launch.touched[id];
      rows.row_bytes = static_cast<std::uint32_t>(
          line.whole(value.at("row_bytes"), "row_bytes", std::numeric_limits<std::uint32_t>::max()));
      rows.rows = line.whole(value.at("rows"), "rows", most_rows);
      if (rows.row_bytes == 0) {
        line.refuse("\"touched\" of tensor " + name + " has rows of no bytes");
      }
    }
  }

  static std::int64_t tensor_named(const json_line& line, const std::string& name, const char* where) {
    std::int64_t id = 0;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (code != std::errc{} || end != name.data() + name.size()) {
      line.refuse("\"" + std::string(where) + "\" names \"" + name + "\", which is not the number of a tensor");
    }
    return id;
  }

  static described_layer read_layer(const json_line& line) {
    const nlohmann::json& value = line.at("layer");
    const auto part = [&](const char* key) -> const nlohmann::json& {
      if (!value.is_object() || !value.contains(key)) {
        line.refuse(std::string("\"layer\" lacks \"") + key + "\"");
      }
      return value.at(key);
    };
    described_layer layer;
    layer.number =
        static_cast<std::uint32_t>(line.whole(part("number"), "layer", std::numeric_limits<std::uint32_t>::max() - 1));
    layer.pass = part("pass") == to_string(layer_pass::backward) ? layer_pass::backward : layer_pass::forward;
    if (part("pass") != to_string(layer.pass)) {
      line.refuse("the pass of a layer is forward or backward, not " + part("pass").dump());
    }
    unsigned kind = 0;
    while (kind != layer_kind_count && part("kind") != to_string(static_cast<layer_kind>(kind))) {
      ++kind;
    }
    if (kind == layer_kind_count) {
      line.refuse("there is no layer of the kind " + part("kind").dump());
    }
    layer.kind = static_cast<layer_kind>(kind);
    if (value.contains("input")) {
      if (!value.at("input").is_array() || layer.pass == layer_pass::backward) {
        line.refuse("the input of a layer is a list of tensors, in its forward pass alone");
      }
      for (const nlohmann::json& id : value.at("input")) {
        layer.input.push_back(tensor_id(line, id, "input"));
      }
    }
    return layer;
  }

  // A file that was edited may still have its old header, so this does not keep it from being replayed.
  void compare_counts() {
    const auto compare = [&](const char* what, std::optional<std::uint64_t> stated, std::size_t found) {
      if (stated && *stated != found) {
        warnings_.push_back(std::string(source_) + ": the header says " + std::to_string(*stated) + " " + what +
                            ", the file has " + std::to_string(found));
      }
    };
    compare("launches", stated_launches_, result_.launches.size());
    compare("tensors", stated_tensors_, result_.tensors.size());
  }

  static constexpr std::uint64_t max_tensor_id = std::numeric_limits<std::int64_t>::max();
  static constexpr double longest_launch_ns = 86400e9;
  static constexpr std::uint64_t most_rows = std::uint64_t{1} << 40U;

  std::string_view source_;
  bool header_seen_ = false;
  std::size_t last_line_ = 1;
  std::optional<std::uint64_t> stated_launches_{};
  std::optional<std::uint64_t> stated_tensors_{};
  std::unordered_set<std::int64_t> seen_{};  // numbers of tensors
  std::vector<std::string> warnings_{};
  workload_description result_{};
};

}  // namespace

workload parse_workload(std::string_view source, std::string_view text) {
  parser read(source, text);
  workload w = build_workload(source, read.take());
  w.warnings = read.take_warnings();
  return w;
}

workload read_workload(const std::string& path) { return parse_workload(path, read_text(path)); }

}  // namespace deepum::replay
