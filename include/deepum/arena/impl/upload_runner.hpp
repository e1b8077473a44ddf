#pragma once

#include <deepum/arena/upload_runner.hpp>
#include <deepum/arena/waiting.hpp>
#include <deepum/arena/worker_threads.hpp>
#include <deepum/engine/upload_desk.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE upload_runner::upload_runner(arena_back& of, const upload_options& chosen)
    : back_(of),
      options_(chosen),
      piece_(std::min(of.block(), std::max(chosen.piece, bytes{4096}))) {
  const unsigned most = std::max(1U, std::min(chosen.threads, std::max(1U, std::thread::hardware_concurrency())));
  stream_ = back_.engine().open_stream({});
  workers_ = back_.memory().make_workers(std::max(1U, chosen.threads), [this] { return next(); });
  if (!workers_) {
    threads_ = true;
    workers_ = std::make_unique<worker_threads>(most, [this] { return next(); });
  }
  back_.engine().uploads().set_listener([this] {
    news_.store(true, std::memory_order_release);
    workers_->wake();
  });
}

DEEPUM_SEPARATE upload_runner::~upload_runner() {
  back_.engine().uploads().set_listener({});
  workers_.reset();
  back_.engine().close_stream(*stream_);
}

DEEPUM_SEPARATE std::shared_ptr<upload_progress> upload_runner::begin(stream_id of, const target& to,
                                                                      const upload_source& source, bool stages) {
  back_.engine().uploads().check(to.blocks);
  back_.keep_pace();
  const auto made = std::make_shared<active>(active{.stream = of,
                                                    .to = to,
                                                    .source = source,
                                                    .stages = stages,
                                                    .progress = std::make_shared<upload_progress>(),
                                                    .blocks = std::vector<one_block>(to.blocks.count),
                                                    .left = to.blocks.count});
  const auto pieces_of_block = static_cast<std::uint32_t>((back_.block() + piece_ - bytes{1}) / piece_);
  for (std::uint32_t b = 0; b != to.blocks.count; ++b) {
    one_block& block = made->blocks[b];
    block.pieces.assign(pieces_of_block, piece_state::unread);
    block.staged.resize(pieces_of_block);
    for (std::uint32_t p = 0; p != pieces_of_block; ++p) {
      if (bytes_of(*made, b, p).size.count == 0) {
        block.pieces[p] = piece_state::done;
      } else {
        ++block.left;
      }
    }
    made->unread += block.left;
  }
  add(made);
  return made->progress;
}

DEEPUM_SEPARATE void upload_runner::add(const upload& made) {
  launch_record record;
  record.stream = *stream_;
  record.name = "upload";
  record.upload = true;
  record.accesses.push_back({made->to.blocks, access::overwrite});
  const std::lock_guard lock(mutex_);
  made->id = back_.engine().report(std::move(record));  // no worker asks before it is known here
  made->progress->id = made->id;
  active_.push_back(made);
  if (turn_ == active_.end()) {
    turn_ = std::prev(active_.end());
  }
}

// --- what the program produces ---------------------------------------------------------------------------------------

DEEPUM_SEPARATE std::shared_ptr<upload_runner::produced> upload_runner::begin_produced(const target& to) {
  back_.engine().uploads().check(to.blocks);
  back_.keep_pace();
  const auto made = std::make_shared<active>(active{.produced = true,
                                                    .stream = *stream_,
                                                    .to = to,
                                                    .source = upload_source(nullptr),
                                                    .progress = std::make_shared<upload_progress>(),
                                                    .blocks = std::vector<one_block>(to.blocks.count),
                                                    .left = to.blocks.count});
  add(made);
  return std::shared_ptr<produced>(new produced(made));
}

DEEPUM_SEPARATE std::byte* upload_runner::await_writable(const produced& of) {
  const active& in = *of.upload_;
  wait([&] {
    const std::lock_guard lock(mutex_);
    return in.writable == in.to.blocks.count;
  });
  std::byte* found = nullptr;
  unsigned tries = 0;
  constexpr unsigned most_tries = 10000;
  wait([&] {
    found = back_.memory().fill_address(in.to.span.offset, in.to.span.size);
    if (found == nullptr && (++tries == most_tries || !back_.engine().relieve_host())) {
      throw error(status::out_of_host_memory, "the host has no memory for " + std::to_string(in.to.span.size.count) +
                                                  " bytes of arena::stream_in: " + back_.memory().last_failure());
    }
    return found != nullptr;
  });
  return found;
}

DEEPUM_SEPARATE void upload_runner::written(produced& of, std::uint32_t blocks, const std::string& failure) {
  for (; of.written_ < blocks; ++of.written_) {
    if (!failure.empty()) {
      of.upload_->progress->failed.store(true, std::memory_order_release);
    }
    end_block(of.upload_, of.written_, failure);
  }
}

// --- waiting ---------------------------------------------------------------------------------------------------------

template <class Done>
void upload_runner::wait(Done&& done) {
  long_wait(back_.memory(), back_.log())
      .until(
          [&] {
            const bool over = done();
            if (!over) {
              back_.check_device();
            }
            return over;
          },
          [] {
            return std::string(
                "an upload waits for launches in flight that use its memory, or for memory of the host; if those "
                "launches wait for this thread in turn, upload after they have finished");
          });
}

DEEPUM_SEPARATE void upload_runner::await_read(const upload_progress& which) {
  wait([&] { return which.read.load(std::memory_order_acquire); });
}

DEEPUM_SEPARATE void upload_runner::await_written(const upload_progress& which) {
  wait([&] { return which.written.load(std::memory_order_acquire); });
}

DEEPUM_SEPARATE void upload_runner::await(stream_id of) {
  wait([&] {
    const std::lock_guard lock(mutex_);
    return std::none_of(active_.begin(), active_.end(), [of](const upload& a) { return a->stream == of; });
  });
}

DEEPUM_SEPARATE void upload_runner::await(block_range range) {
  wait([&] { return !back_.engine().uploads().any_on(range); });
}

DEEPUM_SEPARATE void upload_runner::abandon(stream_id of) {
  const std::lock_guard lock(mutex_);
  for (const upload& a : active_) {
    a->abandoned = a->abandoned || a->stream == of;
  }
}

// --- what is next ----------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE std::optional<host_job> upload_runner::next() {
  const std::lock_guard lock(mutex_);
  if (news_.exchange(false, std::memory_order_acquire)) {
    take_news();
  }
  if (std::optional<host_job> job = demanded_write()) {
    return job;
  }
  if (std::optional<host_job> job = write_in_turn()) {
    return job;
  }
  return read_ahead();
}

DEEPUM_SEPARATE void upload_runner::take_news() {
  std::vector<upload_block> writable;
  std::vector<upload_block> delayed;
  back_.engine().uploads().take(writable, delayed, demanded_);
  for (const upload_block& d : delayed) {
    if (const upload in = find(d.upload); in && in->stages) {
      in->delayed.push_back(d.block.value - in->to.blocks.begin_value());
    }
  }
  for (const upload_block& w : writable) {
    const upload in = find(w.upload);
    const std::uint32_t b = w.block.value - in->to.blocks.begin_value();
    in->blocks[b].writable = true;
    if (in->produced) {
      ++in->writable;
      back_.memory().notify();
    } else {
      queue(*in, b);
    }
  }
}

DEEPUM_SEPARATE upload_runner::upload upload_runner::find(launch_id id) const {
  const auto it = std::find_if(active_.begin(), active_.end(), [id](const upload& a) { return a->id == id; });
  return it != active_.end() ? *it : nullptr;
}

DEEPUM_SEPARATE void upload_runner::queue(active& in, std::uint32_t block) {
  if (!std::exchange(in.blocks[block].queued, true)) {
    in.ready.push_back(block);
  }
}

DEEPUM_SEPARATE std::optional<std::uint32_t> upload_runner::next_piece(const one_block& b, bool unread_alone) {
  for (std::uint32_t p = 0; p != b.pieces.size(); ++p) {
    if (b.pieces[p] == piece_state::unread || (!unread_alone && b.pieces[p] == piece_state::staged)) {
      return p;
    }
  }
  return std::nullopt;
}

DEEPUM_SEPARATE std::optional<host_job> upload_runner::write_of(const upload& in, std::uint32_t block) {
  one_block& b = in->blocks[block];
  const std::optional<std::uint32_t> p = b.writable ? next_piece(b, false) : std::nullopt;
  if (!p) {
    return std::nullopt;
  }
  const bool was_staged = b.pieces[*p] == piece_state::staged;
  b.pieces[*p] = piece_state::under_way;
  const piece_of piece{in, block, *p};
  return host_job{bytes_of(*in, block, *p).size, [this, piece, was_staged] { write(piece, was_staged); }};
}

DEEPUM_SEPARATE std::optional<host_job> upload_runner::demanded_write() {
  while (!demanded_.empty()) {
    bool waits = false;
    for (const upload_block& d : demanded_) {
      const upload in = find(d.upload);
      const std::uint32_t b = in ? d.block.value - in->to.blocks.begin_value() : 0;
      if (in) {
        if (std::optional<host_job> job = write_of(in, b)) {
          return job;
        }
        waits = waits || !in->blocks[b].writable;
      }
    }
    if (waits) {
      return std::nullopt;
    }
    demanded_.clear();
  }
  return std::nullopt;
}

DEEPUM_SEPARATE std::optional<host_job> upload_runner::write_in_turn() {
  for (std::size_t rest = active_.size(); rest != 0; --rest) {
    if (turn_ == active_.end()) {
      turn_ = active_.begin();
    }
    const upload in = *turn_;
    while (!in->ready.empty()) {
      const std::uint32_t b = in->ready.front();
      if (std::optional<host_job> job = write_of(in, b)) {
        if (!next_piece(in->blocks[b], false)) {
          in->ready.pop_front();
          in->blocks[b].queued = false;
          ++turn_;
        }
        return job;
      }
      in->ready.pop_front();
      in->blocks[b].queued = false;
    }
    ++turn_;
  }
  return std::nullopt;
}

DEEPUM_SEPARATE std::optional<host_job> upload_runner::read_ahead() {
  for (const upload& in : active_) {
    while (!in->delayed.empty()) {
      const std::uint32_t b = in->delayed.front();
      const std::optional<std::uint32_t> p = in->blocks[b].writable ? std::nullopt : next_piece(in->blocks[b], true);
      if (!p) {
        in->delayed.pop_front();
        continue;
      }
      const bytes size = bytes_of(*in, b, *p).size;
      if (staged_ + size > options_.staged && staged_.count != 0) {
        return std::nullopt;
      }
      staged_ += size;
      in->blocks[b].pieces[*p] = piece_state::under_way;
      const piece_of piece{in, b, *p};
      return host_job{size, [this, piece] { stage(piece); }};
    }
  }
  return std::nullopt;
}

DEEPUM_SEPARATE byte_span upload_runner::bytes_of(const active& in, std::uint32_t block, std::uint32_t piece) const {
  const bytes block_begin = back_.block() * (in.to.blocks.begin_value() + block);
  const bytes begin = std::max(block_begin + piece_ * piece, in.to.span.offset);
  const bytes end = std::min({block_begin + piece_ * (piece + std::uint64_t{1}), block_begin + back_.block(),
                              in.to.span.offset + in.to.span.size});
  return {begin, begin < end ? end - begin : bytes{}};
}

// --- jobs ------------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void upload_runner::stage(const piece_of& p) {
  const byte_span where = bytes_of(*p.in, p.block, p.piece);
  std::unique_ptr<std::byte[]> to(new std::byte[where.size.count]);
  const std::string failure =
      p.in->source.read(to.get(), p.in->to.skip + (where.offset - p.in->to.span.offset), where.size);
  bool waits = false;
  bool ended = false;
  {
    const std::lock_guard lock(mutex_);
    one_block& b = p.in->blocks[p.block];
    b.pieces[p.piece] = piece_state::staged;
    b.staged[p.piece] = std::move(to);
    b.failure = b.failure.empty() ? failure : b.failure;
    waits = b.writable;
    if (waits) {
      queue(*p.in, p.block);
    }
    ended = read(*p.in);
  }
  if (ended) {
    source_is_read(*p.in);
  }
  if (waits) {
    workers_->wake();
  }
}

DEEPUM_SEPARATE void upload_runner::write(const piece_of& p, bool was_staged) {
  active& in = *p.in;
  const byte_span where = bytes_of(in, p.block, p.piece);
  std::byte* const to = back_.memory().fill_address(where.offset, where.size);
  std::string failure;
  if (to == nullptr) {
    if (put_back(p, was_staged)) {
      return;
    }
    failure = "the host has no memory for it: " + back_.memory().last_failure();
  } else if (was_staged) {
    std::memcpy(to, in.blocks[p.block].staged[p.piece].get(), where.size.count);
  } else if (in.abandoned) {
    failure = "it was abandoned, because the device has failed";
  } else {
    failure = in.source.read(to, in.to.skip + (where.offset - in.to.span.offset), where.size);
  }
  wrote(p, was_staged, failure);
}

DEEPUM_SEPARATE bool upload_runner::put_back(const piece_of& p, bool was_staged) {
  constexpr unsigned most_refusals = 100000;  // some seconds
  const bool more = back_.engine().relieve_host();
  std::this_thread::yield();
  const std::lock_guard lock(mutex_);
  refusals_ += more ? 1 : 100;
  if (refusals_ > most_refusals) {
    refusals_ = 0;
    return false;
  }
  p.in->blocks[p.block].pieces[p.piece] = was_staged ? piece_state::staged : piece_state::unread;
  queue(*p.in, p.block);
  return true;
}

DEEPUM_SEPARATE void upload_runner::wrote(const piece_of& p, bool was_staged, const std::string& failure) {
  active& in = *p.in;
  bool block_over = false;
  bool room = false;
  bool ended = false;
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    one_block& b = in.blocks[p.block];
    b.pieces[p.piece] = piece_state::done;
    b.failure = b.failure.empty() ? failure : b.failure;
    refusals_ = 0;
    if (was_staged) {
      b.staged[p.piece].reset();
      staged_ -= bytes_of(in, p.block, p.piece).size;
      room = true;
    } else {
      ended = read(in);
    }
    block_over = --b.left == 0;
    why = b.failure;
  }
  if (ended) {
    source_is_read(in);
  }
  if (block_over) {
    if (!why.empty()) {
      in.progress->failed.store(true, std::memory_order_release);
    }
    end_block(p.in, p.block, why);
  }
  if (room) {
    workers_->wake();
  }
}

DEEPUM_SEPARATE void upload_runner::end_block(const upload& in, std::uint32_t block, const std::string& failure) {
  back_.engine().uploads().written({in->id, block_id{in->to.blocks.begin_value() + block}}, failure);
  {
    const std::lock_guard lock(mutex_);
    if (--in->left == 0) {
      const auto it = std::find(active_.begin(), active_.end(), in);
      turn_ = turn_ == it ? std::next(it) : turn_;
      active_.erase(it);
      in->progress->written.store(true, std::memory_order_release);
    }
  }
  back_.memory().notify();
}

DEEPUM_SEPARATE bool upload_runner::read(active& in) { return --in.unread == 0; }

DEEPUM_SEPARATE void upload_runner::source_is_read(active& in) {
  in.source.end();
  in.progress->read.store(true, std::memory_order_release);
  back_.memory().notify();
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
