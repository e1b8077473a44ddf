#include "machine.hpp"

#include "json_lines.hpp"
#include <deepum/core/block.hpp>
#include <deepum/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>

namespace deepum::replay {
namespace {

using nlohmann::json;

constexpr unsigned most_places = location::limit;

/// Reads one machine. Everything that is wrong with it ends in `refuse`.
class machine_reader {
 public:
  machine_reader(std::string_view source, std::string_view text) : source_(source) {
    file_ = json::parse(text, nullptr, false);
    if (!file_.is_object()) {
      refuse("a machine is a JSON object");
    }
  }

  machine read() {
    machine m;
    read_links();
    read_routes();
    find_ends();
    const std::vector<bytes> budgets = read_budgets();
    m.budget = budgets[location::device(0).index()];
    std::vector<place_link> links;
    for (std::size_t l = 0; l != names_.size(); ++l) {
      links.push_back({place_at(2 * l), place_at(2 * l + 1), rates_[l]});
    }
    std::vector<std::pair<std::uint8_t, std::uint8_t>> detours;
    for (const way& w : ways_) {
      if (w.links.size() == 2) {
        detours.emplace_back(w.links[0], w.links[1]);
      }
    }
    check(links);
    m.places = topology{location::device(0), budgets, std::move(links), detours};
    m.names = names_;
    read_caps(m);
    read_row_rates(m);
    m.copy_latency =
        nanoseconds{static_cast<std::int64_t>(std::ceil(number(at(file_, "copy_latency_ns"), "copy_latency_ns")))};
    return m;
  }

 private:
  // A route of the file. Ends are places: 0 the host, 1 + i device i.
  struct way {
    unsigned from = 0;
    unsigned to = 0;
    std::vector<std::uint8_t> links{};
  };

  [[noreturn]] void refuse(const std::string& reason) const {
    throw error(status::bad_format, std::string(source_) + ": " + reason);
  }
  const json& at(const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) {
      refuse("\"" + std::string(key) + "\" is missing");
    }
    return *found;
  }
  double number(const json& value, const std::string& what) const {
    if (!value.is_number() || !(value.get<double>() >= 0) || !(value.get<double>() <= 1e12)) {
      refuse(what + " is no number from 0 to 10^12");
    }
    return value.get<double>();
  }
  unsigned place(const json& value) const {
    if (value == "host") {
      return 0;
    }
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() + 1 >= most_places) {
      refuse("a place is \"host\" or the number of a device below " + std::to_string(most_places - 1));
    }
    return static_cast<unsigned>(value.get<std::uint64_t>()) + 1;
  }
  std::uint8_t link(const json& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name.is_string() ? name.get<std::string>() : "");
    if (found == names_.end()) {
      refuse("there is no link " + name.dump());
    }
    return static_cast<std::uint8_t>(found - names_.begin());
  }

  void read_links() {
    const json& links = at(file_, "links");
    if (!links.is_object() || links.empty() || links.size() > route::none / 2) {
      refuse("\"links\" names no links, or more than " + std::to_string(route::none / 2));
    }
    for (const auto& [name, rate] : links.items()) {
      names_.push_back(name);
      rates_.push_back(number(rate, "the rate of \"" + name + "\""));
      if (rates_.back() == 0) {
        refuse("link \"" + name + "\" carries nothing");
      }
    }
  }
  void read_routes() {
    for (const json& r : at(file_, "routes")) {
      if (!r.is_array() || r.size() != 3 || !r[2].is_array() || r[2].empty() || r[2].size() > 2) {
        refuse("a route is a place, a place, and a list of one link or two: " + r.dump());
      }
      way w{place(r[0]), place(r[1]), {}};
      for (const json& l : r[2]) {
        w.links.push_back(link(l));
      }
      ways_.push_back(w);
    }
  }

  // Links have two ends each, by number 2 l and 2 l + 1. Ends that are the same place are joined.
  void find_ends() {
    ends_.resize(2 * names_.size());
    for (std::size_t e = 0; e != ends_.size(); ++e) {
      ends_[e].same_as = e;
    }
    for (const way& w : ways_) {
      name_end(2 * std::size_t{w.links.front()}, w.from);
      name_end(2 * std::size_t{w.links.back()} + 1, w.to);
      if (w.links.size() == 2) {
        join(2 * std::size_t{w.links[0]} + 1, 2 * std::size_t{w.links[1]});
      }
    }
    for (std::size_t l = 0; l != names_.size(); ++l) {
      if (std::none_of(ways_.begin(), ways_.end(),
                       [l](const way& w) { return std::find(w.links.begin(), w.links.end(), l) != w.links.end(); })) {
        refuse("no route uses link \"" + names_[l] + "\"");
      }
    }
    name_the_others();
  }
  std::size_t root(std::size_t e) const {
    while (ends_[e].same_as != e) {
      e = ends_[e].same_as;
    }
    return e;
  }
  void name_end(std::size_t e, unsigned at) {
    std::optional<unsigned>& known = ends_[root(e)].place;
    if (known && *known != at) {
      refuse("link \"" + names_[e / 2] + "\" begins or ends at two places");
    }
    known = at;
  }
  void join(std::size_t a, std::size_t b) {
    a = root(a);
    b = root(b);
    if (a == b) {
      return;
    }
    const std::optional<unsigned> place = ends_[b].place;
    ends_[b].same_as = a;
    if (place) {
      name_end(a, *place);
    }
  }
  // Nothing says which devices pass on what comes and goes: the first one that does the one does the other, too.
  void name_the_others() {
    unsigned most = 1;
    for (const auto& [device, gib] : at(file_, "budgets_gib").items()) {
      most = std::max(most, device_of(device) + 1);
    }
    for (const way& w : ways_) {
      most = std::max({most, w.from, w.to});
    }
    unsigned inward = most;
    unsigned outward = most;
    for (const way& w : ways_) {
      std::optional<unsigned>& between = ends_[root(2 * std::size_t{w.links.front()} + 1)].place;
      if (!between) {
        unsigned& next = w.from == 0 ? inward : outward;
        between = ++next;
      }
    }
    places_ = std::max(inward, outward) + 1;
    if (places_ > most_places) {
      refuse("there are more than " + std::to_string(most_places) + " places");
    }
  }
  void check(const std::vector<place_link>& links) const {
    for (std::size_t l = 0; l != links.size(); ++l) {
      if (links[l].from == links[l].to) {
        refuse("link \"" + names_[l] + "\" leads nowhere");
      }
    }
    for (const way& w : ways_) {
      if (w.from == w.to) {
        refuse("a route leads nowhere");
      }
    }
    constexpr unsigned device = location::device(0).index();
    for (const auto& [from, to] : {std::pair{0U, device}, {device, 0U}}) {
      if (std::none_of(ways_.begin(), ways_.end(), [&](const way& w) { return w.from == from && w.to == to; })) {
        refuse("there is no route between the host and device 0, one each way");
      }
    }
  }
  location place_at(std::size_t e) const { return location::at(*ends_[root(e)].place); }

  unsigned device_of(const std::string& key) const {
    unsigned device = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), device);
    if (read.ec != std::errc{} || read.ptr != key.data() + key.size() || device + 1 >= most_places) {
      refuse("\"budgets_gib\" has \"" + key + "\", which is no device");
    }
    return device;
  }
  std::vector<bytes> read_budgets() {
    std::vector<bytes> budgets(places_);
    for (const auto& [device, gib] : at(file_, "budgets_gib").items()) {
      budgets[device_of(device) + 1] =
          block_size * static_cast<std::uint64_t>(number(gib, "the budget of device " + device) * 512);
    }
    if (budgets[location::device(0).index()].count == 0) {
      refuse("device 0 has no budget, and launches run there");
    }
    return budgets;
  }
  void read_row_rates(machine& m) {
    const auto rates = file_.find("row_rates");
    if (rates == file_.end()) {
      return;
    }
    if (!rates->is_object()) {
      refuse("\"row_rates\" is no object of rates by the bytes of a row");
    }
    for (const auto& [row, rate] : rates->items()) {
      std::uint32_t from = 0;
      const auto end = std::from_chars(row.data(), row.data() + row.size(), from);
      if (end.ec != std::errc{} || end.ptr != row.data() + row.size()) {
        refuse("\"row_rates\" has \"" + row + "\", which is no number of bytes");
      }
      m.row_rates.emplace_back(from, number(rate, "the rate of rows of " + row + " bytes"));
    }
    std::sort(m.row_rates.begin(), m.row_rates.end());
  }
  void read_caps(machine& m) {
    const auto caps = file_.find("caps");
    if (caps == file_.end()) {
      return;
    }
    for (const json& c : *caps) {
      if (!c.is_array() || c.size() != 2 || !c[0].is_array()) {
        refuse("a cap is a list of links and a rate: " + c.dump());
      }
      link_cap cap{{}, number(c[1], "the rate of a cap")};
      for (const json& l : c[0]) {
        cap.links.push_back(link(l));
      }
      m.caps.push_back(std::move(cap));
    }
  }

  std::string_view source_;
  json file_{};
  std::vector<std::string> names_{};
  std::vector<double> rates_{};
  std::vector<way> ways_{};
  struct link_end {
    std::size_t same_as = 0;
    std::optional<unsigned> place{};
  };
  std::vector<link_end> ends_{};
  unsigned places_ = 0;
};

}  // namespace

std::uint32_t machine::shortest_row() const {
  double most = 0;
  std::uint32_t found = 0;
  for (const auto& [from, gbps] : row_rates) {
    if (gbps > most) {
      most = gbps;
      found = std::max(from, 1U);
    }
  }
  return found;
}

double machine::rate(location from, location to) const {
  std::vector<double> left;
  left.reserve(places.links().size());
  for (const place_link& l : places.links()) {
    left.push_back(l.rate);
  }
  std::vector<double> capped;
  capped.reserve(caps.size());
  for (const link_cap& c : caps) {
    capped.push_back(c.gbps);
  }
  double sum = 0;
  for (const std::uint8_t way : places.between(from, to)) {
    double more = places.rate(way);
    const auto times = [&](const link_cap& c) {  // that the way comes over links of the cap
      std::ptrdiff_t links = 0;
      places.routes()[way].for_each_link(
          [&](std::uint8_t l) { links += std::count(c.links.begin(), c.links.end(), l); });
      return static_cast<double>(links);
    };
    places.routes()[way].for_each_link([&](std::uint8_t l) { more = std::min(more, left[l]); });
    for (std::size_t c = 0; c != caps.size(); ++c) {
      more = times(caps[c]) > 0 ? std::min(more, capped[c] / times(caps[c])) : more;
    }
    places.routes()[way].for_each_link([&](std::uint8_t l) { left[l] -= more; });
    for (std::size_t c = 0; c != caps.size(); ++c) {
      capped[c] -= more * times(caps[c]);
    }
    sum += more;
  }
  return sum;
}

machine one_device(bytes budget, const link_costs& costs) {
  return {.places = {location::device(),
                     {bytes{}, bytes{}},
                     {{location::host(), location::device(), costs.h2d_gbps},
                      {location::device(), location::host(), costs.d2h_gbps}}},
          .names = {"in", "out"},
          .caps = costs.both_gbps > 0 ? std::vector<link_cap>{{.links = {0, 1}, .gbps = costs.both_gbps}}
                                      : std::vector<link_cap>{},
          .budget = budget,
          .copy_latency = costs.copy_latency,
          .fault_latency = costs.fault_latency,
          .fault_overlap = costs.fault_overlap,
          .driver_makes_room = costs.driver_makes_room};
}

machine parse_machine(std::string_view source, std::string_view text) { return machine_reader{source, text}.read(); }

machine read_machine(const std::string& path) { return parse_machine(path, read_text(path)); }

}  // namespace deepum::replay
