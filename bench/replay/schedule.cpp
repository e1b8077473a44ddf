#include "schedule.hpp"

#include "json_lines.hpp"
#include <deepum/error.hpp>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace deepum::replay {
namespace {

constexpr std::uint64_t latest = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t block_limit = std::numeric_limits<std::uint32_t>::max();

constexpr std::pair<schedule_event, std::string_view> copy_names[] = {
    {schedule_event::copy_in, "in"}, {schedule_event::copy_out, "out"}, {schedule_event::copy_clean, "clean"}};

/// Appends text and numbers to one line. Numbers are the shortest that read back as they were.
class line_builder {
 public:
  line_builder& operator<<(std::string_view text) {
    text_ += text;
    return *this;
  }
  template <class Number>
  line_builder& operator<<(Number n)
    requires std::is_arithmetic_v<Number>
  {
    char digits[32];
    const auto written = std::to_chars(digits, digits + sizeof digits, n);
    text_.append(digits, written.ptr);
    return *this;
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

schedule_entry parse_entry(const json_line& line) {
  schedule_entry e;
  const auto time = [&](const char* key) { return nanoseconds{static_cast<std::int64_t>(line.whole(key, latest))}; };
  const auto number = [&](const char* key) { return static_cast<std::uint32_t>(line.whole(key, block_limit)); };
  const auto blocks = [&](const char* first) {
    e.blocks = {block_id{number(first)}, number("count")};
    if (e.blocks.empty() || e.blocks.count > block_limit - e.blocks.begin_value()) {
      line.refuse("\"count\" is 0, or the last block has a number of more than 32 bits");
    }
  };
  if (line.has("copy")) {
    const std::string name = line.string("copy");
    bool known = false;
    for (const auto& [what, copy_name] : copy_names) {
      if (copy_name == name) {
        e.what = what;
        known = true;
      }
    }
    if (!known) {
      line.refuse("unknown copy \"" + name + "\"; it may be in, out or clean");
    }
    blocks("block");
    e.start = time("start");
    e.end = time("end");
  } else if (line.has("drop") || line.has("new")) {
    e.what = line.has("drop") ? schedule_event::drop : schedule_event::make_new;
    blocks(line.has("drop") ? "drop" : "new");
    e.start = e.end = time("at");
  } else if (line.has("kernel")) {
    e.what = schedule_event::launch;
    e.kernel = number("kernel");
    e.step = number("step");
    e.start = time("start");
    e.end = time("end");
  } else {
    line.refuse("neither a copy, drop, new nor kernel");
  }
  if (e.end < e.start) {
    line.refuse("ends before it starts");
  }
  return e;
}

bool is_copy(schedule_event what) { return what <= schedule_event::copy_clean || what == schedule_event::move; }

// As the format has it: a name, or a number.
void put_place(line_builder& line, location l) {
  l.is_host() ? line << "\"host\"" : line << l.index() - location::device(0).index();
}

// The names of its links.
void put_route(line_builder& line, std::uint8_t via, const machine& on) {
  const char* before = "[";
  on.places.routes()[via].for_each_link([&](std::uint8_t l) {
    line << before << nlohmann::json(on.names[l]).dump();
    before = ",";
  });
  line << "]";
}

// A launch that touches blocks on the host.
std::string launch_line(const schedule_entry& e, const machine& on) {
  line_builder line;
  line << "{\"kernel\":" << e.kernel << ",\"step\":" << e.step << ",\"start\":" << e.start.count()
       << ",\"end\":" << e.end.count();
  const char* before = ",\"in_place\":[";
  for (const schedule_in_place& p : e.in_place) {
    line << before << "{\"block\":" << p.blocks.begin_value() << ",\"count\":" << p.blocks.count << ",\"route_in\":";
    put_route(line, on.places.cheapest(location::host(), location::device()), on);
    line << ",\"route_out\":";
    put_route(line, on.places.cheapest(location::device(), location::host()), on);
    line << ",\"in\":" << p.in << ",\"out\":" << p.out << "}";
    before = ",";
  }
  line << "]}\n";
  return line.take();
}

}  // namespace

std::string schedule_line(const schedule_header& header) {
  line_builder line;
  line << "{\"deepum_schedule\":1,\"budget_bytes\":" << header.budget.count << ",\"h2d_gbps\":" << header.h2d_gbps
       << ",\"d2h_gbps\":" << header.d2h_gbps << ",\"copy_latency_ns\":" << header.copy_latency.count() << "}\n";
  return line.take();
}

std::string schedule_line(const schedule_entry& e) {
  line_builder line;
  if (e.what == schedule_event::launch) {
    line << "{\"kernel\":" << e.kernel << ",\"step\":" << e.step;
  } else {
    if (is_copy(e.what)) {
      line << "{\"copy\":\"" << copy_names[static_cast<std::size_t>(e.what)].second << "\",\"block\":";
    } else {
      line << (e.what == schedule_event::drop ? "{\"drop\":" : "{\"new\":");
    }
    line << e.blocks.begin_value() << ",\"count\":" << e.blocks.count;
  }
  if (e.what == schedule_event::drop || e.what == schedule_event::make_new) {
    line << ",\"at\":" << e.start.count() << "}\n";
  } else {
    line << ",\"start\":" << e.start.count() << ",\"end\":" << e.end.count() << "}\n";
  }
  return line.take();
}

std::string schedule_line(const schedule_entry& e, const machine& on) {
  if (e.what == schedule_event::drop) {
    line_builder line;
    line << "{\"drop\":" << e.blocks.begin_value() << ",\"count\":" << e.blocks.count << ",\"at\":" << e.start.count()
         << ",\"place\":";
    put_place(line, e.from);
    line << "}\n";
    return line.take();
  }
  if (e.what == schedule_event::launch && !e.in_place.empty()) {
    return launch_line(e, on);
  }
  if (!is_copy(e.what)) {
    return schedule_line(e);
  }
  line_builder line;
  line << "{\"copy\":\"move\",\"block\":" << e.blocks.begin_value() << ",\"count\":" << e.blocks.count << ",\"from\":";
  put_place(line, e.from);
  line << ",\"to\":";
  put_place(line, e.to);
  line << ",\"route\":";
  put_route(line, e.via, on);
  line << ",\"then\":\"" << (e.then == afterwards::keep ? "keep" : "release") << "\",\"start\":" << e.start.count()
       << ",\"end\":" << e.end.count() << "}\n";
  return line.take();
}

struct schedule_writer::file {
  std::string path;
  gzFile handle = nullptr;
  std::optional<machine> on{};  // version 2
  nanoseconds in_end{};
  nanoseconds out_end{};

  ~file() {
    if (handle != nullptr) {
      gzclose(handle);
      std::remove(path.c_str());
    }
  }

  [[noreturn]] void fail(const char* api) const {
    throw error(status::io_failure, path + ": " + (errno != 0 ? std::strerror(errno) : "could not be written"), api,
                errno);
  }
  void put(const std::string& line) {
    errno = 0;
    if (gzwrite(handle, line.data(), static_cast<unsigned>(line.size())) <= 0) {
      fail("gzwrite");
    }
  }
};

schedule_writer::schedule_writer(const std::string& path, const schedule_header& header)
    : file_(std::make_unique<file>()) {
  open(path, schedule_line(header));
}
schedule_writer::schedule_writer(const std::string& path, const machine& on) : file_(std::make_unique<file>()) {
  file_->on = on;
  open(path, "{\"deepum_schedule\":2}\n");
}

void schedule_writer::open(const std::string& path, const std::string& header) {
  file_->path = path;
  errno = 0;
  file_->handle = gzopen(path.c_str(), path.ends_with(".gz") ? "wb6" : "wbT");
  if (file_->handle == nullptr) {
    file_->fail("gzopen");
  }
  file_->put(header);
}
schedule_writer::~schedule_writer() = default;
schedule_writer::schedule_writer(schedule_writer&&) noexcept = default;
schedule_writer& schedule_writer::operator=(schedule_writer&&) noexcept = default;

void schedule_writer::write(const schedule_entry& e) {
  expects(file_ != nullptr, "a schedule is written to that is finished");
  expects(e.end >= e.start && e.start >= nanoseconds{}, "a schedule has an event that ends before it starts");
  expects(e.what == schedule_event::launch || !e.blocks.empty(), "a schedule moves no blocks");
  if (file_->on) {
    file_->put(schedule_line(e, *file_->on));
    return;
  }
  expects(e.what != schedule_event::move, "a schedule of version 1 knows one device");
  if (is_copy(e.what)) {
    nanoseconds& link_end = e.what == schedule_event::copy_in ? file_->in_end : file_->out_end;
    expects(e.start >= link_end, "copies of one direction overlap in a schedule");
    link_end = e.end;
  }
  file_->put(schedule_line(e));
}

void schedule_writer::finish() {
  expects(file_ != nullptr, "a schedule is finished twice");
  errno = 0;
  const int code = gzclose(std::exchange(file_->handle, nullptr));
  if (code != Z_OK) {
    std::remove(file_->path.c_str());
    file_->fail("gzclose");
  }
  file_.reset();
}

schedule parse_schedule(std::string_view source, std::string_view text) {
  schedule s;
  bool header_seen = false;
  for_each_line(source, text, [&](const json_line& line) {
    if (header_seen) {
      s.entries.push_back(parse_entry(line));
      return;
    }
    if (!line.has("deepum_schedule") || line.at("deepum_schedule") != 1) {
      line.refuse("not a schedule, version 1");
    }
    s.header.budget = bytes{line.whole("budget_bytes", latest)};
    s.header.h2d_gbps = line.number("h2d_gbps");
    s.header.d2h_gbps = line.number("d2h_gbps");
    s.header.copy_latency = nanoseconds{static_cast<std::int64_t>(line.whole("copy_latency_ns", latest))};
    header_seen = true;
  });
  if (!header_seen) {
    refuse_line(source, 1, "empty; a schedule begins with its header");
  }
  return s;
}

schedule read_schedule(const std::string& path) { return parse_schedule(path, read_text(path)); }

}  // namespace deepum::replay
