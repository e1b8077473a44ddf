#include "../../examples/serve/connection.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>

namespace connection_test {

using namespace serve;
using namespace std::chrono_literals;

/// Both ends of a connection.
struct ends {
  explicit ends(const connection_limits& limits) {
    std::array<int, 2> both{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, both.data()) == 0);
    client = both[0];
    server = new connection(both[1], limits);
  }
  ~ends() {
    close();
    (void)::close(client);
  }
  ends(const ends&) = delete;
  ends& operator=(const ends&) = delete;

  void close() { delete std::exchange(server, nullptr); }
  void send(const std::string& text) const {
    CHECK(::send(client, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  /// Reads as the library reads a head: byte by byte, to the end of a line.
  [[nodiscard]] std::string line() const {
    std::string read;
    for (char c = 0; c != '\n' && server->read(&c, 1) == 1;) {
      read += c;
    }
    return read;
  }

  int client = -1;
  connection* server = nullptr;
};

TEST_CASE("a head is read to its limit, and a body goes on behind it") {
  ends both({.head = 20, .body = 5});
  both.send("GET / HTTP/1.1\r\n\r\n0123456789");
  CHECK(both.server->begins(1s));
  CHECK(both.line() == "GET / HTTP/1.1\r\n");
  CHECK(both.line() == "\r\n");
  both.server->head_has_ended();
  std::array<char, 100> body{};
  CHECK(both.server->read(body.data(), body.size()) == 5);
  CHECK(both.server->read(body.data(), body.size()) == 0);
  CHECK(both.server->what_is_wrong() == connection::fault::none);
}

TEST_CASE("a head without an end is cut off, in one line or in many, and no more of it is kept") {
  for (const std::string piece : {"x", "a: b\r\n"}) {
    CAPTURE(piece);
    ends both({.head = 16384});
    std::thread client([&] {
      std::string many;
      while (many.size() < 65536) {
        many += piece;
      }
      for (int i = 0; i < 16; ++i) {  // 1 MiB
        (void)::send(both.client, many.data(), many.size(), MSG_NOSIGNAL);
      }
    });
    std::size_t taken = 0;
    for (std::string line = both.line(); !line.empty(); line = both.line()) {
      taken += line.size();
    }
    CHECK(taken == 16384);
    CHECK(both.server->what_is_wrong() == connection::fault::head_too_long);
    CHECK(both.server->write("431", 3) == 3);
    both.close();  // passes over what is still sent
    client.join();
    std::array<char, 8> answer{};
    CHECK(::recv(both.client, answer.data(), answer.size(), 0) == 3);
  }
}

TEST_CASE("a head that comes slowly is cut off, and so is a client that keeps silent") {
  {
    ends both({.time_of_head = 50ms, .silence = 60s});
    both.send("GET");
    CHECK(both.line() == "GET");
    CHECK(both.server->what_is_wrong() == connection::fault::head_too_slow);
  }
  {
    ends both({.time_of_head = 60s, .silence = 20ms});
    both.send("GET");
    CHECK(both.line() == "GET");
    CHECK(both.server->what_is_wrong() == connection::fault::head_too_slow);
  }
  {
    ends both({.silence = 20ms});
    CHECK(!both.server->begins(1ms));
    both.send("a\r\n");
    CHECK(both.line() == "a\r\n");
    both.server->head_has_ended();
    char c = 0;
    CHECK(both.server->read(&c, 1) == -1);
    CHECK(both.server->what_is_wrong() == connection::fault::none);
  }
}

}  // namespace connection_test
