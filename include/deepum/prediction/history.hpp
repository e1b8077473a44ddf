#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/prediction/execution_id_table.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/trust.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// What the history makes of one launch.
struct observation {
  execution_id id{};
  bool is_new = false;
  execution_id retired{};  ///< forget this ID in all tables first; none: nothing to forget
  outcome was = outcome::unpredicted;
  execution_context context{};  ///< the launch and the three before it
};

/// Which launches follow which: the execution ID table and the execution correlation table, which all streams share,
/// and the last four launches of each stream.
///
/// Not synchronised.
class history {
 public:
  /// @param by           When two launches are the same one.
  /// @param match        Which records of the execution table predict.
  /// @param max_ids      Execution IDs kept. 0: unbounded.
  /// @param max_records  Records kept. 0: unbounded.
  history(recognition by, execution_table::match match, std::uint32_t max_ids = 0, std::size_t max_records = 0)
      : how_(by),
        match_(match),
        ids_(by, max_ids),
        successions_(match, max_records) {}

  /// A launch was issued: identifies it, and records that it follows the one before it on its stream.
  /// Cost: a few hash look-ups.
  observation observe(stream_id stream, const launch_signature& signature) {
    execution_context& context = streams_[stream].last;
    context = this->context(stream);
    const std::optional<execution_id> expected = predict(context);
    const identified found = ids_.identify(signature, expected.value_or(execution_id{}));
    observation seen{.id = found.id, .is_new = found.is_new, .retired = found.retired};
    if (expected) {
      seen.was = *expected == found.id && !found.is_new ? outcome::predicted : outcome::mispredicted;
    }
    if (found.retired.valid()) {
      forget(found.retired);
      context = this->context(stream);
    }
    if (context.current.valid()) {
      successions_.record(context, found.id);
    }
    context.push(found.id);
    streams_[stream].at = ++observed_;
    seen.context = context;
    ++counts_[static_cast<std::size_t>(seen.was)];
    return seen;
  }

  /// The launch that will follow. A sequence is predicted by pushing each prediction on a copy of the context.
  [[nodiscard]] std::optional<execution_id> predict(const execution_context& context) const {
    return context.current.valid() ? successions_.predict(context) : std::nullopt;
  }

  /// The last four launches of a stream.
  [[nodiscard]] execution_context context(stream_id stream) const {
    // An ID that has been retired since means another launch by now, which the stream has not had.
    const one_stream s = streams_.get(stream);
    execution_context context = s.last;
    for (execution_id* id : {&context.preceding[0], &context.preceding[1], &context.preceding[2], &context.current}) {
      *id = retired_at_.find(*id) != nullptr && retired_at_.get(*id) >= s.at ? execution_id{} : *id;
    }
    return context;
  }
  /// A stream was closed: the next stream with its number has launched nothing.
  void close(stream_id stream) { streams_.reset(stream); }

  /// Appends the launches and which follow which. The last launches of the streams belong to this run.
  void save(archive_writer& out) const {
    out.section(tag, [&] {
      out.put(how_);
      out.put(match_);
      ids_.save(out);
      successions_.save(out);
    });
  }
  /// A history that was saved; no stream has launched anything. The parameters are those of a new one.
  /// @errors  `status::bad_format`, also for one with other parameters, and where there is more than is kept.
  [[nodiscard]] static history load(archive_reader& in, recognition how, execution_table::match match,
                                    std::uint32_t max_ids = 0, std::size_t max_records = 0) {
    return in.section(tag, [&] {
      history loaded(how, match, max_ids, max_records);
      if (in.get_enum(recognition::adaptive) != how) {
        in.refuse("launches were recognised in another way, exact or adaptive");
      }
      if (in.get_enum(execution_table::match::longest_suffix) != match) {
        in.refuse("launches were predicted by other records, those of the whole context or of the longest suffix");
      }
      loaded.ids_ = execution_id_table::load(in, how, max_ids);
      loaded.successions_ = execution_table::load(in, execution_id{loaded.execution_ids()}, match, max_records);
      return loaded;
    });
  }

  /// Launches that came out in this way.
  [[nodiscard]] std::uint64_t count(outcome o) const { return counts_[static_cast<std::size_t>(o)]; }
  [[nodiscard]] std::uint32_t execution_ids() const { return ids_.size(); }
  [[nodiscard]] bytes memory() const {
    return ids_.memory() + successions_.memory() + streams_.memory() + retired_at_.memory();
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("hist");

  struct one_stream {
    execution_context last{};
    std::uint64_t at = 0;  // launches observed until the last one of them
  };

  // The number will mean another launch, so no stream may seem to have had it before.
  void forget(execution_id retired) {
    successions_.forget(retired);
    retired_at_[retired] = observed_;
  }

  recognition how_;
  execution_table::match match_;
  execution_id_table ids_;
  execution_table successions_;
  detail::id_map<stream_id, one_stream> streams_{};
  detail::id_map<execution_id, std::uint64_t> retired_at_{};  // launches observed until it was; 0: it never was
  std::uint64_t observed_ = 0;
  std::uint64_t counts_[3] = {};
};

}  // namespace v0
}  // namespace deepum
