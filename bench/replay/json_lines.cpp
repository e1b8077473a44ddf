#include "json_lines.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

namespace deepum::replay {
namespace {

// Bounds the memory that a hostile file can take: a packed one grows up to a thousand times, and a parsed line up to
// thirty times.
constexpr std::size_t longest_text = std::size_t{1} << 30U;
constexpr std::size_t longest_line = std::size_t{16} << 20U;

struct close_gzip {
  void operator()(gzFile file) const { gzclose(file); }
};

std::string quote(std::string_view name) {
  std::string quoted(1, '"');
  quoted += name;
  quoted += '"';
  return quoted;
}

nlohmann::json parse_object(std::string_view source, std::size_t number, std::string_view text) {
  if (text.size() > longest_line) {
    refuse_line(source, number, "longer than 16 MiB");
  }
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    // Of "[json.exception.parse_error.101] parse error at line 1, column 9: ...", only the end says something new.
    const std::string_view what = e.what();
    const std::size_t column = what.find("column ");
    refuse_line(source, number,
                std::string("not JSON: ").append(column == std::string_view::npos ? what : what.substr(column)));
  }
  if (!value.is_object()) {
    refuse_line(source, number, "not a JSON object");
  }
  return value;
}

}  // namespace

void refuse_line(std::string_view source, std::size_t number, const std::string& reason) {
  throw error(status::bad_format, std::string(source) + ":" + std::to_string(number) + ": " + reason);
}

std::string read_text(const std::string& path) {
  errno = 0;
  const std::unique_ptr<gzFile_s, close_gzip> file(gzopen(path.c_str(), "rb"));
  if (!file) {
    throw error(status::io_failure, path + ": " + std::strerror(errno != 0 ? errno : ENOMEM), "gzopen", errno);
  }
  std::string text;
  const auto failed = [&] {
    int code = Z_OK;
    const std::string why = gzerror(file.get(), &code);
    if (code == Z_ERRNO) {
      throw error(status::io_failure, path + ": " + std::strerror(errno), "gzread", errno);
    }
    throw error(status::bad_format, path + ": " + (why.empty() ? "the gzip data are damaged" : why), "gzread", code);
  };
  for (std::size_t step = std::size_t{1} << 16U;; step = std::min(step * 2, std::size_t{1} << 24U)) {
    const std::size_t had = text.size();
    text.resize(had + step);
    const int got = gzread(file.get(), text.data() + had, static_cast<unsigned>(step));
    if (got < 0) {
      failed();
    }
    text.resize(had + static_cast<std::size_t>(got));
    if (text.size() > longest_text) {
      throw error(status::bad_format, path + ": longer than 1 GiB");
    }
    if (got == 0) {
      // Where the end of the packed data is missing, gzread reports it once and then as an end.
      int code = Z_OK;
      gzerror(file.get(), &code);
      if (code != Z_OK) {
        failed();
      }
      return text;
    }
  }
}

json_line::json_line(std::string_view source, std::size_t number, std::string_view text)
    : source_(source),
      number_(number),
      object_(parse_object(source, number, text)) {}

const nlohmann::json& json_line::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) {
    refuse(quote(key) + " is missing");
  }
  return *found;
}

std::uint64_t json_line::whole(const nlohmann::json& value, std::string_view what, std::uint64_t max) const {
  // Negative numbers are signed, and the others are not.
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > max) {
    refuse(quote(what) + " is not a whole number from 0 to " + std::to_string(max));
  }
  return value.get<std::uint64_t>();
}

double json_line::number(const char* key) const {
  const nlohmann::json& value = at(key);
  const double number = value.is_number() ? value.get<double>() : -1.0;
  if (!(number >= 0.0) || !std::isfinite(number)) {
    refuse(quote(key) + " is not a number of at least 0");
  }
  return number;
}

std::string json_line::string(const char* key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_string()) {
    refuse(quote(key) + " is not a string");
  }
  return value.get<std::string>();
}

void json_line::refuse(const std::string& reason) const { refuse_line(source_, number_, reason); }

void for_each_line(std::string_view source, std::string_view text, const std::function<void(const json_line&)>& visit) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r\v\f") != std::string_view::npos) {
      visit(json_line(source, number, line));
    }
  }
}

void refuse(std::string_view source, std::size_t line, const std::string& reason) {
  if (line == 0) {
    throw error(status::bad_format, std::string(source) + ": " + reason);
  }
  refuse_line(source, line, reason);
}

}  // namespace deepum::replay
