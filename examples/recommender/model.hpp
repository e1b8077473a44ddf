#pragma once

#include "look_ups.hpp"
#include <deepum/arena.hpp>
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// All of it is numbers: a launch that gets one can touch nothing through it.
template <>
inline constexpr bool deepum::hides_no_pointers<recommender::sizes> = true;

namespace recommender {

/// How launches tell what they do with tables.
enum class telling : std::uint8_t {
  rows,   ///< `gathers` and `scatters`: rows are looked up
  whole,  ///< `reads` and `updates`, as if they used all of a table
};

/// A recommendation model in the manner of DLRM: sums of embeddings from many tables, a net on the dense features below
/// and one on all of it above, trained with AdaGrad on the rows that a batch looks up.
/// @tparam Kernels  `launch(stream, name, threads, ...)` for each of the kernels.
template <class Memory, class Kernels>
class model {
 public:
  model(deepum::arena<Memory>& a, const sizes& how, telling tells) : arena_(a), m_(how), tells_(tells), s_(a) {
    std::mt19937_64 random{1};
    for (index t = 0; t != m_.tables; ++t) {
      tables_.push_back(make(table_floats(), random, 0.01F));
      const auto view = arena_.host_write(tables_.back(), table_floats());
      for (index r = 0; r != m_.rows; ++r) {
        view[static_cast<std::size_t>(r) * m_.width + m_.weights()] = 0;  // nothing was learned yet
      }
    }
    w0_ = make(count(m_.features, m_.weights()), random, 0.3F);
    w1_ = make(count(m_.inputs(), m_.hidden), random, 0.05F);
    w2_ = make(count(m_.hidden, 1), random, 0.3F);
    dense_ = make(count(m_.batch, m_.features), random, 1);
    labels_ = make(count(m_.batch, 1), random, 1);
    x_ = make(count(m_.batch, m_.inputs()), random, 0);
    dx_ = make(count(m_.batch, m_.inputs()), random, 0);
    h_ = make(count(m_.batch, m_.hidden), random, 0);
    dh_ = make(count(m_.batch, m_.hidden), random, 0);
    g_ = make(count(m_.batch, 1), random, 0);
    loss_ = make(count(m_.batch, 1), random, 0);
    for (index t = 0; t != m_.tables; ++t) {
      found_.push_back({allocate(uses()), allocate(uses()), allocate(uses() + 1), allocate(uses())});
    }
  }

  /// Predicts a batch, and learns from it where `trains`. @returns  The mean loss.
  float step(const std::vector<look_ups>& batch, const std::vector<float>& dense, const std::vector<float>& labels,
             bool trains) {
    using deepum::overwrites;
    using deepum::reads;
    using deepum::updates;
    copy(dense_, dense);
    copy(labels_, labels);
    for (index t = 0; t != m_.tables; ++t) {
      const auto at = static_cast<std::size_t>(t);
      copy(found_[at].rows, batch[at].rows);
      if (trains) {
        copy(found_[at].unique, batch[at].unique);
        copy(found_[at].first, batch[at].first);
        copy(found_[at].users, batch[at].users);
      }
    }
    const std::size_t all_x = count(m_.batch, m_.inputs());
    const std::size_t all_h = count(m_.batch, m_.hidden);
    Kernels::launch(s_, "bottom", Kernels::bottom(), m_.batch * m_.weights(), updates(x_), reads(dense_), reads(w0_),
                    m_);
    for (index t = 0; t != m_.tables; ++t) {
      const auto at = static_cast<std::size_t>(t);
      const index threads = m_.batch * m_.weights();
      const deepum::looked_up rows{static_cast<std::uint64_t>(m_.batch * m_.bag), width()};
      if (tells_ == telling::rows) {
        Kernels::launch(s_, "embed", Kernels::embed(), threads, updates(x_),
                        deepum::gathers(tables_[at], table_floats(), rows), reads(found_[at].rows), t, m_);
      } else {
        Kernels::launch(s_, "embed", Kernels::embed(), threads, updates(x_), reads(tables_[at]), reads(found_[at].rows),
                        t, m_);
      }
    }
    Kernels::launch(s_, "hidden", Kernels::hidden(), m_.batch * m_.hidden, overwrites(h_, all_h), reads(x_), reads(w1_),
                    m_);
    Kernels::launch(s_, "predict", Kernels::predict(), m_.batch, overwrites(loss_, count(m_.batch, 1)),
                    overwrites(g_, count(m_.batch, 1)), reads(h_), reads(w2_), reads(labels_), m_);
    if (trains) {
      Kernels::launch(s_, "hidden_back", Kernels::hidden_back(), m_.batch * m_.hidden, overwrites(dh_, all_h),
                      reads(g_), reads(h_), reads(w2_), m_);
      Kernels::launch(s_, "learn_w2", Kernels::learn_w2(), m_.hidden, updates(w2_), reads(g_), reads(h_), m_);
      Kernels::launch(s_, "input_back", Kernels::input_back(), m_.batch * m_.inputs(), overwrites(dx_, all_x),
                      reads(dh_), reads(w1_), m_);
      Kernels::launch(s_, "learn_w1", Kernels::learn_w1(), m_.inputs() * m_.hidden, updates(w1_), reads(x_), reads(dh_),
                      m_);
      Kernels::launch(s_, "learn_w0", Kernels::learn_w0(), m_.features * m_.weights(), updates(w0_), reads(dx_),
                      reads(x_), reads(dense_), m_);
      for (index t = 0; t != m_.tables; ++t) {
        learn_table(t, static_cast<index>(batch[static_cast<std::size_t>(t)].unique.size()));
      }
    }
    s_.synchronize();
    float sum = 0;
    for (const float loss : arena_.host_read(loss_, count(m_.batch, 1))) {
      sum += loss;
    }
    return sum / static_cast<float>(m_.batch);
  }

 private:
  struct on_device {
    index* rows;
    index* unique;
    index* first;
    index* users;
  };

  void learn_table(index t, index rows) {
    using deepum::reads;
    const auto at = static_cast<std::size_t>(t);
    const on_device& f = found_[at];
    if (tells_ == telling::rows) {
      Kernels::launch(s_, "adagrad", Kernels::adagrad(), rows,
                      deepum::scatters(tables_[at], table_floats(), {static_cast<std::uint64_t>(rows), width()}),
                      reads(dx_), reads(f.unique), reads(f.first), reads(f.users), t, rows, m_);
    } else {
      Kernels::launch(s_, "adagrad", Kernels::adagrad(), rows, deepum::updates(tables_[at]), reads(dx_),
                      reads(f.unique), reads(f.first), reads(f.users), t, rows, m_);
    }
  }

  static std::size_t count(index a, index b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }
  [[nodiscard]] std::size_t table_floats() const { return count(m_.rows, m_.width); }
  [[nodiscard]] std::uint64_t width() const { return static_cast<std::uint64_t>(m_.width); }
  [[nodiscard]] std::size_t uses() const { return count(m_.batch, m_.bag); }
  [[nodiscard]] index* allocate(std::size_t n) { return arena_.template allocate<index>(n); }

  float* make(std::size_t n, std::mt19937_64& random, float scale) {
    float* const made = arena_.template allocate<float>(n);
    for (float& f : arena_.host_overwrite(made, n)) {
      f = scale * (static_cast<float>(random() >> 40U) * 0x1p-23F - 1);
    }
    return made;
  }
  template <class T>
  void copy(T* to, const std::vector<T>& from) {
    s_.memcpy(to, from.data(), deepum::bytes{from.size() * sizeof(T)});
  }

  deepum::arena<Memory>& arena_;
  sizes m_;
  telling tells_;
  deepum::stream<Memory> s_;
  std::vector<float*> tables_{};
  std::vector<on_device> found_{};
  float* w0_ = nullptr;
  float* w1_ = nullptr;
  float* w2_ = nullptr;
  float* dense_ = nullptr;
  float* labels_ = nullptr;
  float* x_ = nullptr;
  float* dx_ = nullptr;
  float* h_ = nullptr;
  float* dh_ = nullptr;
  float* g_ = nullptr;
  float* loss_ = nullptr;
};

}  // namespace recommender
