#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <limits>

namespace serve {

/// What one client may ask of the server before it has asked for anything.
struct connection_limits {
  std::size_t head = std::size_t{16} << 10;                    ///< bytes of a request before its body
  std::size_t body = std::numeric_limits<std::size_t>::max();  ///< bytes after that, as they are sent
  std::chrono::milliseconds time_of_head{10'000};              ///< from the first byte on
  std::chrono::milliseconds silence{5'000};                    ///< between two bytes, each way
};

/// A client's socket, of which no more is read than a request may have. The HTTP library itself reads a head to its
/// end, wherever that is.
///
/// Threads: one.
class connection {
 public:
  enum class fault { none, head_too_long, head_too_slow };

  /// @param socket  Connected. Is closed in the end.
  explicit connection(int socket, const connection_limits& limits = {}) : socket_(socket), limits_(limits) {}
  /// Who was cut off may still be sending, and would lose his answer if the socket were closed before he has seen it.
  ~connection() {
    if (fault_ != fault::none) {
      (void)::shutdown(socket_, SHUT_WR);
      const clock::time_point until = clock::now() + time_to_read_the_answer;
      std::size_t left = most_to_pass_over;
      for (ssize_t n = 1; n > 0 && left > 0 && waits_for(POLLIN, until);
           left -= std::min(left, static_cast<std::size_t>(n))) {
        n = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      }
    }
    (void)::shutdown(socket_, SHUT_RDWR);
    (void)::close(socket_);
  }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  /// Waits for the first byte. @returns  Whether it came in time.
  [[nodiscard]] bool begins(std::chrono::milliseconds patience) {
    const bool came = waits_for(POLLIN, clock::now() + patience);
    head_ends_by_ = clock::now() + limits_.time_of_head;
    return came;
  }
  /// The library has read the head and found it good.
  void head_has_ended() {
    in_head_ = false;
    left_ = limits_.body;
  }
  /// Why the rest of the head is not read, if so.
  [[nodiscard]] fault what_is_wrong() const { return fault_; }

  /// As `recv`; 0 also where the client has sent all that it may, -1 where it keeps silent.
  ssize_t read(char* to, std::size_t n) {
    n = std::min(n, left_);
    if (n == 0) {
      fault_ = in_head_ ? fault::head_too_long : fault_;
      return 0;
    }
    if (begin_ == end_) {
      const clock::time_point silent = clock::now() + limits_.silence;
      if (!waits_for(POLLIN, in_head_ ? std::min(silent, head_ends_by_) : silent)) {
        fault_ = in_head_ ? fault::head_too_slow : fault_;
        return in_head_ ? 0 : -1;
      }
      const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) {
        return got;
      }
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
    n = std::min(n, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, n, to);
    begin_ += n;
    left_ -= n;
    if (in_head_ && clock::now() > head_ends_by_) {
      fault_ = fault::head_too_slow;
      return 0;
    }
    return static_cast<ssize_t>(n);
  }
  /// As `send`; -1 also where the client takes nothing.
  ssize_t write(const char* from, std::size_t n) { return can_write() ? ::send(socket_, from, n, MSG_NOSIGNAL) : -1; }
  [[nodiscard]] bool can_read() const { return begin_ != end_ || waits_for(POLLIN, clock::now() + limits_.silence); }
  [[nodiscard]] bool can_write() const { return waits_for(POLLOUT, clock::now() + limits_.silence); }
  [[nodiscard]] int socket() const { return socket_; }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds time_to_read_the_answer{1'000};
  static constexpr std::size_t most_to_pass_over = std::size_t{8} << 20;

  [[nodiscard]] bool waits_for(short what, clock::time_point until) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
      pollfd one{socket_, what, 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::max<decltype(left)>(left, 0)));
      if (ready >= 0 || errno != EINTR) {
        return ready > 0;
      }
    }
  }

  int socket_;
  connection_limits limits_;
  std::array<char, 4096> buffer_{};
  std::size_t begin_ = 0;  // of what has been received and not read
  std::size_t end_ = 0;
  bool in_head_ = true;
  std::size_t left_ = limits_.head;
  clock::time_point head_ends_by_ = clock::now() + limits_.time_of_head;
  fault fault_ = fault::none;
};

}  // namespace serve
