// Puts a server of examples/serve under load and checks every answer against what the server said before it had any
// load. Good requests, bad ones, and clients that go away come from many connections at once; the memory of the server
// has to stay flat; at the end it is told to stop while it is still writing.

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "program/command_line.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

ABSL_FLAG(std::int64_t, port, 8080, "port of the server, on 127.0.0.1");
ABSL_FLAG(std::int64_t, connections, 100, "connections at once");
ABSL_FLAG(double, seconds, 10, "how long to put load on the server");
ABSL_FLAG(std::int64_t, tokens, 16, "bytes of the longest text under load");
ABSL_FLAG(std::uint64_t, seed, 1, "of what is asked for in which order");
ABSL_FLAG(std::int64_t, pid, 0, "process of the server, whose memory to watch; 0: nobody watches");
ABSL_FLAG(double, growth_mib, 16, "memory by which the server may grow after a third of the time");
ABSL_FLAG(bool, stop, false, "tell the server (--pid) to stop in the end, while it writes texts");
ABSL_FLAG(bool, expect_timeouts, false, "the server has a --timeout that is too short for most texts");

namespace {

using clock_type = std::chrono::steady_clock;
using namespace std::chrono_literals;

// How a request went.
struct answer {
  int status = 0;      // 0: none
  bool whole = false;  // with its end
  std::string text{};
  bool retry_after = false;
};

// One text to ask for, and what it has to be.
struct question {
  std::string body{};
  std::string expected{};
  bool drawn = false;  // with a seed: else an untrained model may say the same to everything
};

// What went wrong is shown as it happens, up to a few, and counted.
class failures {
 public:
  void add(const std::string& what) {
    if (++count_ <= 20) absl::FPrintF(stderr, "load_client: %s\n", what);
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
};

class client {
 public:
  explicit client(int port) : port_(port) {}

  /// @param begun       Set at the first byte of an answer with status 200; null: nobody asks.
  /// @param leave_after  Bytes after which the client goes away; 0: it stays.
  [[nodiscard]] answer post(const std::string& body, std::size_t leave_after = 0,
                            std::atomic<int>* begun = nullptr) const {
    httplib::Client connection("127.0.0.1", port_);
    connection.set_read_timeout(120);
    answer result;
    httplib::Request request;
    request.method = "POST";
    request.path = "/generate";
    request.body = body;
    request.set_header("Content-Type", "application/json");
    request.response_handler = [&](const httplib::Response& r) {
      result.status = r.status;
      result.retry_after = r.has_header("Retry-After");
      return true;
    };
    request.content_receiver = [&](const char* data, std::size_t n, std::uint64_t, std::uint64_t) {
      if (begun != nullptr && result.text.empty()) ++*begun;
      result.text.append(data, n);
      return leave_after == 0 || result.text.size() < leave_after;
    };
    const httplib::Result sent = connection.send(request);
    result.whole = static_cast<bool>(sent);
    return result;
  }
  [[nodiscard]] answer get(const std::string& path) const {
    httplib::Client connection("127.0.0.1", port_);
    connection.set_read_timeout(120);
    const httplib::Result r = connection.Get(path);
    if (!r) return {};
    return {.status = r->status, .whole = true, .text = r->body, .retry_after = r->has_header("Retry-After")};
  }
  /// Sends these bytes as they are, and then keeps silent. @returns  The status of the answer; 0: there was none.
  [[nodiscard]] int raw(std::string_view bytes) const {
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string got;
    if (connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
      while (!bytes.empty()) {
        const ssize_t n = send(s, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) break;
        bytes.remove_prefix(static_cast<std::size_t>(n));
      }
      std::array<char, 4096> buffer{};
      for (ssize_t n = 0; (n = recv(s, buffer.data(), buffer.size(), 0)) > 0;)
        got.append(buffer.data(), static_cast<std::size_t>(n));
    }
    close(s);
    int status = 0;
    if (got.size() < 12 || !absl::SimpleAtoi(got.substr(9, 3), &status)) return 0;
    return status;
  }

 private:
  int port_;
};

// A value of the server's metrics, by the beginning of its line; -1: there is none.
double metric(const std::string& text, const std::string& begin) {
  const std::size_t at = text.find("\n" + begin + " ");
  if (at == std::string::npos) return -1;
  const std::size_t value = at + begin.size() + 2;
  double number = -1;
  if (!absl::SimpleAtod(text.substr(value, text.find('\n', value) - value), &number)) return -1;
  return number;
}

double resident_mib(std::int64_t pid) {
  std::ifstream file{absl::StrCat("/proc/", pid, "/statm")};
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1048576;
}

std::string with_body(std::string_view head, std::string_view body) {
  return absl::StrCat(std::string{head}, "\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", std::string{body});
}

// Requests that no server may take, and the answer that each should get.
std::vector<std::pair<std::string, int>> bad_requests() {
  constexpr const char* post = "POST /generate HTTP/1.1";
  std::vector<std::pair<std::string, int>> bad;
  for (const char* body : {"",
                           "{",
                           "nonsense",
                           "[]",
                           "7",
                           "null",
                           "{\"model\":0}",
                           "{\"prompt\":\"x\"}",
                           "{\"model\":2,\"prompt\":\"x\"}",
                           "{\"model\":-1,\"prompt\":\"x\"}",
                           "{\"model\":\"0\",\"prompt\":\"x\"}",
                           "{\"model\":0,\"prompt\":\"\"}",
                           "{\"model\":0,\"prompt\":7}",
                           "{\"model\":0,\"prompt\":\"\xff\"}",
                           "{\"model\":0,\"prompt\":\"x\",\"tokens\":0}",
                           "{\"model\":0,\"prompt\":\"x\",\"tokens\":1.5}",
                           "{\"model\":0,\"prompt\":\"x\",\"tokens\":99999999999}",
                           "{\"model\":0,\"prompt\":\"x\",\"seed\":-1}",
                           "{\"model\":0,\"prompt\":\"x\",\"temperature\":-0.1}",
                           "{\"model\":0,\"prompt\":\"x\",\"temperature\":1e999}",
                           "{\"model\":0,\"prompt\":\"x\",\"other\":1}"}) {
    bad.emplace_back(with_body(post, body), 400);
  }
  bad.emplace_back(with_body(post, "{\"model\":0,\"prompt\":\"" + std::string(8000, 'x') + "\"}"), 400);
  bad.emplace_back(with_body(post, std::string(8000, '[')), 400);
  bad.emplace_back(with_body(post, std::string(100'000, ' ')), 413);
  bad.emplace_back(absl::StrCat(post, "\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "4e20\r\n",
                                std::string(20'000, ' '), "\r\n0\r\n\r\n"),
                   413);
  bad.emplace_back(absl::StrCat(post, "\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"model\""), 400);
  bad.emplace_back(absl::StrCat(post, "\r\nHost: x\r\n\r\n"), 411);
  bad.emplace_back(with_body(absl::StrCat(post, "\r\nContent-Type: multipart/form-data; boundary=a"), "--a--"), 415);
  bad.emplace_back(with_body(absl::StrCat(post, "\r\nContent-Encoding: gzip"), "x"), 415);
  bad.emplace_back(with_body("PUT /generate HTTP/1.1", "{}"), 405);
  bad.emplace_back("GET /generate HTTP/1.1\r\nHost: x\r\n\r\n", 405);
  bad.emplace_back(with_body("POST /metrics HTTP/1.1", "{}"), 405);
  bad.emplace_back("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404);
  bad.emplace_back("GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404);
  bad.emplace_back("\x16\x03\x01 no HTTP at all\r\n\r\n", 400);
  bad.emplace_back(absl::StrCat("GET /", std::string(9000, 'x'), " HTTP/1.1\r\nHost: x\r\n\r\n"), 414);
  bad.emplace_back(absl::StrCat("GET /healthz HTTP/1.1\r\nHost: x\r\nA: ", std::string(20'000, 'x'), "\r\n\r\n"), 431);
  std::string lines = "GET /healthz HTTP/1.1\r\nHost: x\r\n";
  while (lines.size() < (std::size_t{3} << 20)) {
    lines += "A: b\r\n";
  }
  bad.emplace_back(lines, 431);  // a head that has no end
  bad.emplace_back(std::string(std::size_t{3} << 20, 'x'), 414);
  return bad;
}

std::vector<question> questions(std::int64_t tokens) {
  std::vector<question> all;
  std::uint64_t seed = 0;
  for (int model = 0; model < 2; ++model) {
    for (const char* prompt : {"The ", "KING:\nWhat is this, and who",
                               "a longer prompt than the model can see at once, "
                               "so that only the end of it can count: now"}) {
      for (const double temperature : {0.0, 0.7, 1.0, 1.0}) {
        const std::int64_t length = std::max<std::int64_t>(1, tokens - static_cast<std::int64_t>(seed % 5));
        all.push_back({.body = nlohmann::json{{"model", model},
                                              {"prompt", prompt},
                                              {"tokens", length},
                                              {"seed", ++seed},
                                              {"temperature", temperature}}
                                   .dump(),
                       .drawn = temperature > 0});
      }
    }
  }
  return all;
}

// One request after the other: what the answers are without load.
void ask_alone(const client& server, std::vector<question>& all, failures& wrong) {
  for (question& q : all) {
    const answer a = server.post(q.body);
    if (a.status != 200 || !a.whole || a.text.empty()) {
      wrong.add(absl::StrCat("without load, status ", a.status, " for ", q.body, ": ", a.text));
    } else if (!q.expected.empty() && a.text != q.expected) {
      wrong.add(absl::StrCat("without load again, another answer to ", q.body));
    }
    q.expected = a.text;
  }
}

struct counts {
  std::mutex mutex{};
  std::map<std::string, std::int64_t> of{};
  void add(const std::string& what) {
    const std::lock_guard lock(mutex);
    ++of[what];
  }
  [[nodiscard]] std::int64_t get(const std::string& what) {
    const std::lock_guard lock(mutex);
    return of[what];
  }
};

// What one connection after the other does until the time is over.
void put_load(const client& server, const std::vector<question>& all, clock_type::time_point until, std::uint64_t seed,
              counts& seen, failures& wrong) {
  static const std::vector<std::pair<std::string, int>> bad = bad_requests();
  std::mt19937_64 random{seed};
  while (clock_type::now() < until) {
    const std::uint64_t kind = random() % 20;
    const question& q = all[random() % all.size()];
    if (kind < 4) {
      const auto& [bytes, status] = bad[random() % bad.size()];
      const int got = server.raw(bytes);
      seen.add(absl::StrCat("bad, answered ", got));
      if (got != status) {
        wrong.add(absl::StrCat("status ", got, " instead of ", status, " for ", bytes.substr(0, 200)));
      }
    } else if (kind < 6) {
      const answer a = server.post(q.body, 1 + random() % 3);
      seen.add(absl::StrCat("went away, status ", a.status));
    } else {
      const answer a = server.post(q.body);
      seen.add(absl::StrCat("good, answered ", a.status));
      if (a.status == 503 && a.whole && a.retry_after) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 60));
      } else if (a.status != 200 || !a.whole) {
        wrong.add(absl::StrCat("status ", a.status, a.whole ? "" : " without an end", " for ", q.body));
      } else if (a.text != q.expected) {
        wrong.add(absl::StrCat("under load another answer to ", q.body, ": ", a.text, " instead of ", q.expected));
      }
    }
  }
}

// The metrics when nothing is in flight any more, or after a minute. Who went away is noticed when the next byte is
// sent, and a client has its answer before the server counts it.
std::string metrics_at_rest(const client& server) {
  const clock_type::time_point patience = clock_type::now() + 60s;
  std::string text;
  do {
    text = server.get("/metrics").text;
  } while (metric(text, "serve_in_flight") != 0 && clock_type::now() < patience);
  return text;
}

// Tells the server to stop while it writes: what it has taken it has to answer.
void stop_server(const client& server, const std::vector<question>& all, std::int64_t pid, failures& wrong) {
  constexpr std::size_t texts = 16;
  std::atomic<int> begun{0};
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (std::size_t i = 0; i < texts; ++i) {
    threads.emplace_back([&, i] {
      const question& q = all[i * 5 % all.size()];
      const answer a = server.post(q.body, 0, &begun);
      if (a.status != 200 || !a.whole || a.text != q.expected) {
        wrong.add(absl::StrCat("stopped: status ", a.status, a.whole ? "" : " without an end", " for ", q.body));
      } else {
        ++answered;
      }
    });
  }
  const auto in_flight = [&] { return metric(server.get("/metrics").text, "serve_in_flight"); };
  const clock_type::time_point patience = clock_type::now() + 60s;
  while ((begun == 0 || (in_flight() < static_cast<double>(texts) && answered == 0)) && clock_type::now() < patience) {
  }
  const int began = begun;
  kill(static_cast<pid_t>(pid), SIGTERM);
  for (std::thread& t : threads)
    t.join();
  absl::PrintF("stopped with %d texts in flight, %d of them begun: %d answered\n", texts, began, answered.load());
}

// With a short --timeout: texts end early, in one of the ways that there are, and the server lives on.
void see_timeouts(const client& server, std::size_t connections, failures& wrong) {
  counts seen;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < connections; ++i) {
    threads.emplace_back([&, i] {
      const answer a =
          server.post(nlohmann::json{{"model", i % 2}, {"prompt", "The "}, {"tokens", 250}, {"seed", i}}.dump());
      seen.add(absl::StrCat("status ", a.status, a.whole ? "" : ", closed without an end"));
      const bool fine = (a.status == 200 && !a.whole) || (a.status == 504 && a.whole) || (a.status == 503 && a.whole);
      if (!fine) wrong.add(absl::StrCat("status ", a.status, a.whole ? " with" : " without", " an end: ", a.text));
    });
  }
  for (std::thread& t : threads)
    t.join();
  for (const auto& [what, count] : seen.of)
    absl::PrintF("%6d  %s\n", count, what);
  if (seen.get("status 200, closed without an end") == 0) wrong.add("no text was begun and ended early");
  if (seen.get("status 504") == 0) wrong.add("no text was told that it was too late");
  // What was given up may still keep it busy for longer than the time-out.
  answer last;
  for (int i = 0; i != 100 && (i == 0 || last.status == 504); ++i)
    last = server.post("{\"model\":1,\"prompt\":\"x\",\"tokens\":1}");
  if (last.status != 200 || !last.whole || last.text.size() != 1)
    wrong.add(absl::StrCat("the server does not live on: status ", last.status, ", ", last.text));
  const std::string text = metrics_at_rest(server);
  if (metric(text, "serve_texts_total{outcome=\"timed_out\"}") <= 0) wrong.add("no time-out was counted");
  if (metric(text, "serve_in_flight") != 0) wrong.add("texts that ended early are still in flight");
}

void see_load(const client& server, std::vector<question>& all, failures& wrong) {
  const std::int64_t pid = absl::GetFlag(FLAGS_pid);
  const clock_type::time_point began = clock_type::now();
  const auto length =
      std::chrono::duration_cast<clock_type::duration>(std::chrono::duration<double>(absl::GetFlag(FLAGS_seconds)));
  counts seen;
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < absl::GetFlag(FLAGS_connections); ++i) {
    threads.emplace_back([&, i] {
      put_load(server, all, began + length, absl::GetFlag(FLAGS_seed) * 1000 + static_cast<std::uint64_t>(i), seen,
               wrong);
    });
  }
  double warm = 0;
  double most = 0;
  while (clock_type::now() < began + length) {
    if (const answer a = server.get("/metrics"); a.status != 200 || !a.text.ends_with("\n# EOF\n")) {
      wrong.add(absl::StrCat("/metrics under load: status ", a.status));
    }
    if (pid != 0) {
      double& of = clock_type::now() < began + length / 3 ? warm : most;
      of = std::max(of, resident_mib(pid));
    }
    std::this_thread::sleep_for(200ms);
  }
  for (std::thread& t : threads)
    t.join();

  for (const auto& [what, count] : seen.of)
    absl::PrintF("%6d  %s\n", count, what);
  if (seen.get("good, answered 200") == 0) wrong.add("nothing was answered");
  if (pid != 0) {
    absl::PrintF("resident memory of the server: %.1f MiB after a third of the time, at most %.1f MiB then\n", warm,
                 most);
    if (most > warm + absl::GetFlag(FLAGS_growth_mib)) wrong.add("the server's memory grows");
  }
  const std::string text = metrics_at_rest(server);
  if (metric(text, "serve_in_flight") != 0) wrong.add("texts are in flight that nobody reads");
  const double finished = metric(text, "serve_texts_total{outcome=\"finished\"}");
  const double needed = static_cast<double>(seen.get("good, answered 200")) + static_cast<double>(all.size());
  if (finished < needed) wrong.add(absl::StrCat("the server counts ", finished, " texts, and ", needed, " were read"));
  if (metric(text, "serve_texts_total{outcome=\"failed\"}") != 0) wrong.add("texts failed");
}

int run() {
  const client server(static_cast<int>(absl::GetFlag(FLAGS_port)));
  failures wrong;
  if (absl::GetFlag(FLAGS_expect_timeouts)) {
    see_timeouts(server, static_cast<std::size_t>(absl::GetFlag(FLAGS_connections)), wrong);
  } else {
    std::vector<question> all = questions(absl::GetFlag(FLAGS_tokens));
    ask_alone(server, all, wrong);
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        // Else crossed answers could not be told from others.
        if (all[i].drawn && all[i].expected == all[j].expected)
          wrong.add(absl::StrCat("questions ", j, " and ", i, " have one answer"));
      }
    }
    if (wrong.count() == 0) see_load(server, all, wrong);
    if (wrong.count() == 0) ask_alone(server, all, wrong);
    if (absl::GetFlag(FLAGS_stop) && absl::GetFlag(FLAGS_pid) != 0) {
      stop_server(server, all, absl::GetFlag(FLAGS_pid), wrong);
    }
  }
  absl::PrintF("%d failures\n", wrong.count());
  return wrong.count() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    (void)deepum_program::read_flags(argc, argv, "puts a server of examples/serve under load and checks its answers");
    return run();
  } catch (const std::exception& e) {
    absl::FPrintF(stderr, "load_client: %s\n", e.what());
    return 1;
  }
}
