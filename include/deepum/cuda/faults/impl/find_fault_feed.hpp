#pragma once

#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/cupti_fault_feed.hpp>
#include <deepum/cuda/faults/driver_fault_feed.hpp>
#include <deepum/cuda/faults/fault_feed.hpp>
#include <deepum/cuda/faults/find_fault_feed.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE fault_source chosen_source(fault_source wanted) {
  const char* name = std::getenv("DEEPUM_FAULT_FEED");
  if (wanted != fault_source::automatic || name == nullptr || *name == '\0') {
    return wanted;
  }
  const std::string_view text = name;
  if (text == "auto") {
    return fault_source::automatic;
  }
  if (text == "driver") {
    return fault_source::driver;
  }
  if (text == "cupti") {
    return fault_source::cupti;
  }
  if (text == "none") {
    return fault_source::none;
  }
  throw error(status::invalid_argument,
              "DEEPUM_FAULT_FEED is '" + std::string(text) + "'; it may be auto, driver, cupti or none");
}

DEEPUM_SEPARATE found_feed find_fault_feed(const device& of, std::byte* base, bytes size,
                                           const std::function<bool(fault_feed&)>& works) {
  std::string why;
  const auto attempt = [&](std::unique_ptr<fault_feed> feed, const char* name) {
    if (feed && !works(*feed)) {
      why += std::string(why.empty() ? "" : "; ") + name + ": it tells of no fault";
      feed.reset();
    }
    return feed;
  };
  const auto open = [&](auto&& make, const char* name) {
    std::unique_ptr<fault_feed> feed;
    try {
      feed = make();
    } catch (const error& e) {
      why += std::string(why.empty() ? "" : "; ") + name + ": " + e.what();
    }
    return attempt(std::move(feed), name);
  };

  found_feed found;
  const fault_source source = chosen_source(of.options().faults);
  if (of.own_feed()) {
    found.feed = open([&] { return of.own_feed()(base, size); }, "own");
  } else {
    if (source == fault_source::automatic || source == fault_source::driver) {
      found.feed = open([&] { return make_driver_fault_feed(base, size); }, "driver");
    }
    if (!found.feed && (source == fault_source::automatic || source == fault_source::cupti)) {
      found.feed = open([&] { return make_cupti_fault_feed(of.ordinal(), base, size); }, "cupti");
    }
  }
  found.description = found.feed ? "page faults are learned from: " + found.feed->name()
                                 : "page faults are not seen; launches are taken to touch what they declare";
  if (!why.empty()) {
    found.description += " (" + why + ")";
  }
  return found;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
