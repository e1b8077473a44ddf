#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "connection.hpp"
#include "generate_request.hpp"
#include "generation.hpp"
#include "httplib.h"
#include "scheduler.hpp"
#include "server_metrics.hpp"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace serve {

struct http_options {
  std::string host = "127.0.0.1";
  int port = 8080;  ///< 0: any that is free
  request_limits limits{};
  std::chrono::milliseconds timeout{30'000};  ///< of a text, from its request to its last byte
  std::size_t threads = 64;                   ///< connections that are served at once; the others wait for one to end
};

/// Threads of connections that know how many connections there are.
class connection_threads : public httplib::ThreadPool {
 public:
  connection_threads(std::size_t threads, std::atomic<std::size_t>& open) : httplib::ThreadPool(threads), open_(open) {}

  // Later versions of the library return whether there was room.
  auto enqueue(std::function<void()> serve_one)
      -> decltype(std::declval<httplib::ThreadPool&>().enqueue(serve_one)) override {
    ++open_;
    return httplib::ThreadPool::enqueue([this, serve = std::move(serve_one)] {
      serve();
      --open_;
    });
  }

 private:
  std::atomic<std::size_t>& open_;
};

/// A connection as the library knows one. Versions of the library differ in what they ask of it.
class library_stream : public httplib::Stream {
 public:
  explicit library_stream(connection& of) : of_(of) {}

  // NOLINTBEGIN(modernize-use-override): some versions have these, some have not
  [[nodiscard]] virtual bool is_readable() const { return of_.can_read(); }
  [[nodiscard]] virtual bool is_writable() const { return of_.can_write(); }
  [[nodiscard]] virtual bool wait_readable() const { return of_.can_read(); }
  [[nodiscard]] virtual bool wait_writable() const { return of_.can_write(); }
  [[nodiscard]] virtual time_t duration() const { return 0; }
  // NOLINTEND(modernize-use-override)
  ssize_t read(char* to, std::size_t n) override { return of_.read(to, n); }
  ssize_t write(const char* from, std::size_t n) override { return of_.write(from, n); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { nobody(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { nobody(ip, port); }
  [[nodiscard]] socket_t socket() const override { return of_.socket(); }

 private:
  /// No endpoint asks who the client is.
  static void nobody(std::string& ip, int& port) {
    ip.clear();
    port = 0;
  }
  connection& of_;
};

/// The endpoints. Each connection serves one request and is then closed: nothing that a request leaves unread can be
/// taken for the next one, and nobody who is idle keeps a thread.
///
/// `run` serves in the calling thread until `drain`, from another one, has answered all that was taken.
class http_server : private httplib::Server {
 public:
  using numbers = std::function<std::string()>;

  /// @param queue         Where texts are taken from by whoever writes them.
  /// @param arena_text    OpenMetrics text of the arena, with its end.
  /// @param device_clock  Adds the device's clock to the levels.
  http_server(const http_options& options, generation_queue& queue, server_metrics& metrics, numbers arena_text,
              std::function<void(server_metrics::levels&)> device_clock)
      : options_(options),
        queue_(queue),
        metrics_(metrics),
        arena_text_(std::move(arena_text)),
        device_clock_(std::move(device_clock)) {
    set_tcp_nodelay(true);
    new_task_queue = [this] { return new connection_threads(options_.threads, open_); };
    set_pre_routing_handler([this](const httplib::Request& q, httplib::Response& r) {
      served()->head_has_ended();
      return refuse(q, r);
    });
    Get("/healthz", [this](const httplib::Request& /*request*/, httplib::Response& r) { health(r); });
    Get("/metrics", [this](const httplib::Request& /*request*/, httplib::Response& r) { all_metrics(r); });
    Post("/generate", [this](const httplib::Request& q, httplib::Response& r, const httplib::ContentReader& reader) {
      generate(q, r, reader);
    });
    set_exception_handler([](const httplib::Request& /*request*/, httplib::Response& r, const std::exception_ptr&) {
      answer(r, 500, "the server failed");
    });
    // What the library itself refuses has no text yet.
    set_error_handler([](const httplib::Request& /*request*/, httplib::Response& r) {
      if (served()->what_is_wrong() == connection::fault::head_too_long && r.status != 414) {
        answer(r, 431, absl::StrCat("the head of a request may have ", connection_limits{}.head, " bytes"));
      } else if (served()->what_is_wrong() == connection::fault::head_too_slow) {
        answer(r, 408, "the head of the request came too slowly");
      }
      if (r.body.empty()) answer(r, r.status, "this is no request that the server understands");
    });
    set_logger([this](const httplib::Request& q, const httplib::Response& r) {
      metrics_.answered(is_endpoint(q.path) ? std::string_view{q.path} : "other", r.status);
    });
  }

  /// @returns  The port; nothing where it cannot be had.
  [[nodiscard]] std::optional<int> bind() {
    int port = options_.port;
    if (port == 0) {
      port = bind_to_any_port(options_.host);
    } else if (!bind_to_port(options_.host, port)) {
      return std::nullopt;
    }
    if (port <= 0) return std::nullopt;
    // The library lets five connections wait to be accepted, and the kernel tells the others to try again in a second.
    ::listen(svr_sock_, backlog);
    return port;
  }

  /// The models are there: from now on texts are taken. Until then requests for them, and for the health of the server,
  /// are answered by 503.
  void begin_texts() { loading_ = false; }
  /// Serves until `drain` has returned. @returns  Whether it ended because of it.
  bool run() { return listen_after_bind(); }

  /// Takes no more texts, waits until those that were taken are answered, and ends `run`. The worker has to run until
  /// the queue is empty. No longer than a text may take, and the time to send its end.
  void drain() {
    draining_ = true;
    queue_.close();
    while (in_flight_ != 0)
      std::this_thread::sleep_for(look_again);
    // Who has connected but was not heard yet is told to come back later.
    for (auto left = time_to_be_heard; open_ != 0 && left.count() > 0; left -= look_again)
      std::this_thread::sleep_for(look_again);
    stop();
  }

 private:
  static constexpr int backlog = 512;
  static constexpr std::chrono::seconds time_to_begin{2};
  static constexpr std::chrono::seconds time_of_body{10};
  static constexpr std::chrono::milliseconds look_again{5};
  static constexpr std::chrono::milliseconds time_to_be_heard{1000};

  // Counts a text from when it is taken until its last byte was sent or nobody wants it.
  class flight {
   public:
    flight(std::atomic<std::size_t>& count, server_metrics& metrics, generation_ptr of)
        : count_(count),
          metrics_(metrics),
          of_(std::move(of)) {}
    ~flight() {
      of_->end(outcome::cancelled);  // where it has not ended: nobody reads it any more
      metrics_.ended(of_->wait().end.value_or(outcome::cancelled), wall_clock::now() - of_->began());
      --count_;
    }
    flight(const flight&) = delete;
    flight& operator=(const flight&) = delete;
    [[nodiscard]] generation& operator*() const { return *of_; }

   private:
    std::atomic<std::size_t>& count_;
    server_metrics& metrics_;
    generation_ptr of_;
  };

  // The connection that this thread serves.
  static connection*& served() {
    thread_local connection* now = nullptr;
    return now;
  }
  // In place of the library's own, which reads heads without a limit.
  bool process_and_close_socket(socket_t socket) override {
    connection_limits limits;
    limits.body = 8 * (options_.limits.body + (std::size_t{1} << 20));  // as it is sent: chunks of a few bytes, say
    connection client(socket, limits);
    served() = &client;
    library_stream stream(client);
    const bool answered = client.begins(time_to_begin) && answer_request(stream);
    served() = nullptr;
    return answered;
  }
  template <class Stream>
  bool answer_request(Stream& stream) {
    bool closed = false;
    if constexpr (requires { this->process_request(stream, true, closed, nullptr); }) {
      return this->process_request(stream, true, closed, nullptr);
    } else {  // later versions
      return this->process_request(stream, std::string{}, 0, std::string{}, 0, true, closed, nullptr);
    }
  }

  static bool is_endpoint(std::string_view path) {
    return path == "/generate" || path == "/metrics" || path == "/healthz";
  }

  static void answer(httplib::Response& r, int status, absl::string_view message) {
    r.status = status;
    r.set_content(error_json(message), "application/json");
  }
  static void come_back_later(httplib::Response& r, absl::string_view message) {
    r.set_header("Retry-After", "1");
    answer(r, 503, message);
  }

  // What can be told from the head of a request, before its body is read. The library would try to make sense of all
  // kinds of bodies, some of which are larger than what is sent.
  HandlerResponse refuse(const httplib::Request& q, httplib::Response& r) const {
    // Ranges may be ignored, and the library would cut messages down to them. The request is its own and not constant.
    const_cast<httplib::Request&>(q).ranges.clear();
    const bool posts = q.path == "/generate";
    if (!is_endpoint(q.path)) {
      answer(r, 404, "there are POST /generate, GET /metrics and GET /healthz");
    } else if (posts ? q.method != "POST" : q.method != "GET" && q.method != "HEAD") {
      r.set_header("Allow", posts ? "POST" : "GET, HEAD");
      answer(r, 405, posts ? "/generate is for POST" : "this is for GET");
    } else if (posts && (q.is_multipart_form_data() || q.has_header("Content-Encoding"))) {
      answer(r, 415, "the body has to be plain JSON");
    } else if (posts && !q.has_header("Content-Length") && !q.has_header("Transfer-Encoding")) {
      answer(r, 411, "a body with a Content-Length is needed");
    } else {
      return HandlerResponse::Unhandled;
    }
    return HandlerResponse::Handled;
  }

  // The body, or why there is none: `kResourceExhausted` where it is too large, `kDeadlineExceeded` where it is too
  // slow. Some of what is too much is read all the same, since who is still sending may not see an answer.
  absl::StatusOr<std::string> body_of(const httplib::ContentReader& reader) const {
    std::string body;
    std::size_t size = 0;
    const std::size_t most = options_.limits.body;
    const wall_clock::time_point deadline = wall_clock::now() + time_of_body;
    const bool whole = reader([&](const char* data, std::size_t n) {
      size += n;
      if (size <= most) body.append(data, n);
      return size <= most + (std::size_t{1} << 20) && wall_clock::now() < deadline;
    });
    if (size > most) {
      return absl::ResourceExhaustedError(absl::StrCat("the body has more than ", most, " bytes"));
    }
    if (wall_clock::now() >= deadline) return absl::DeadlineExceededError("the body came too slowly");
    if (!whole) return absl::InvalidArgumentError("the body ended early");
    return body;
  }

  void generate(const httplib::Request& /*request*/, httplib::Response& r, const httplib::ContentReader& reader) {
    if (loading_) return come_back_later(r, "the models are being loaded");
    const absl::StatusOr<std::string> body = body_of(reader);
    if (!body.ok()) {
      const int status = absl::IsResourceExhausted(body.status())  ? 413
                         : absl::IsDeadlineExceeded(body.status()) ? 408
                                                                   : 400;
      return answer(r, status, body.status().message());
    }
    absl::StatusOr<generate_request> request = parse_request(*body, options_.limits);
    if (!request.ok()) return answer(r, 400, request.status().message());

    const auto text = std::make_shared<generation>(*std::move(request), wall_clock::now() + options_.timeout);
    ++in_flight_;  // before it can be taken, so that `drain` sees it
    if (const offered result = queue_.try_push(text); result != offered::taken) {
      --in_flight_;
      metrics_.refused();
      return come_back_later(r, result == offered::full ? "the queue is full" : "the server is shutting down");
    }
    const auto in_flight = std::make_shared<flight>(in_flight_, metrics_, text);
    // The status is that of the first byte.
    generation::piece first = text->wait();
    if (first.text.empty()) {
      if (first.end == outcome::timed_out) return answer(r, 504, "the first byte took too long");
      return answer(r, 500, absl::StrCat("the device failed: ", text->why()));
    }
    metrics_.first_byte(wall_clock::now() - text->began());
    r.status = 200;
    // Written with a capital, because the library compresses what begins with text/, and keeps it back for that.
    r.set_chunked_content_provider(
        "Text/plain; charset=utf-8",
        [in_flight, piece = std::move(first)](std::size_t /*offset*/, httplib::DataSink& sink) mutable {
          if (!piece.text.empty() && !sink.write(piece.text.data(), piece.text.size())) return false;
          if (piece.end) {
            // An answer without its end says that the text does not have one.
            if (*piece.end == outcome::finished) sink.done();
            return *piece.end == outcome::finished;
          }
          piece = (**in_flight).wait();
          return true;
        });
  }

  void health(httplib::Response& r) const {
    if (loading_) return come_back_later(r, "the models are being loaded");
    if (draining_) return come_back_later(r, "the server is shutting down");
    r.status = 200;
    r.set_content("{\"status\":\"ok\"}\n", "application/json");
  }

  void all_metrics(httplib::Response& r) const {
    server_metrics::levels now{.waiting = queue_.size(), .in_flight = in_flight_, .connections = open_};
    if (!loading_) device_clock_(now);
    r.status = 200;
    r.set_content(metrics_.text(now) + (loading_ ? "# EOF\n" : arena_text_()),
                  "application/openmetrics-text; version=1.0.0; charset=utf-8");
  }

  const http_options options_;
  generation_queue& queue_;
  server_metrics& metrics_;
  numbers arena_text_;
  std::function<void(server_metrics::levels&)> device_clock_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> loading_{true};
  std::atomic<std::size_t> in_flight_{0};
  std::atomic<std::size_t> open_{0};
};

}  // namespace serve
