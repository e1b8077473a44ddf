#pragma once

#include "elements.hpp"
#include <deepum/sim/kernel.hpp>

#include <cstddef>
#include <cstdint>

namespace recommender {

/// The kernels for the simulated GPU: what they do is a loop, and what they touch is said beside it.
namespace sim_kernels {

using deepum::sim::kernel;
using deepum::sim::work;

inline std::size_t floats(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); }
inline std::size_t indices(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(index); }
inline double products(index a, index b, index c) { return 2.0 * a * b * c; }

inline const kernel embed{"embed",
                          [](float* x, const float* table, const index* rows, index t, sizes m) {
                            for (index i = 0; i != m.batch * m.weights(); ++i)
                              embed_element(i, x, table, rows, t, m);
                          },
                          [](work& w, float* x, const float* table, const index* rows, index t, sizes m) {
                            w.reads(rows, indices(m.batch * m.bag));
                            for (index i = 0; i != m.batch * m.bag; ++i) {
                              w.reads(table + static_cast<std::int64_t>(rows[i]) * m.width, floats(m.width));
                            }
                            for (index b = 0; b != m.batch; ++b) {
                              w.updates(x + b * m.inputs() + (t + 1) * m.weights(), floats(m.weights()));
                            }
                          }};
inline const kernel bottom{
    "bottom",
    [](float* x, const float* dense, const float* w0, sizes m) {
      for (index i = 0; i != m.batch * m.weights(); ++i)
        bottom_element(i, x, dense, w0, m);
    },
    [](work& w, float* x, const float* dense, const float* w0, sizes m) {
      w.reads(dense, floats(m.batch * m.features)).reads(w0, floats(m.features * m.weights()));
      w.updates(x, floats(m.batch * m.inputs())).flops(products(m.batch, m.features, m.weights()));
    }};
inline const kernel hidden{"hidden",
                           [](float* h, const float* x, const float* w1, sizes m) {
                             for (index i = 0; i != m.batch * m.hidden; ++i)
                               hidden_element(i, h, x, w1, m);
                           },
                           [](work& w, float* h, const float* x, const float* w1, sizes m) {
                             w.reads(x, floats(m.batch * m.inputs())).reads(w1, floats(m.inputs() * m.hidden));
                             w.overwrites(h, floats(m.batch * m.hidden)).flops(products(m.batch, m.inputs(), m.hidden));
                           }};
inline const kernel predict{
    "predict",
    [](float* loss, float* g, const float* h, const float* w2, const float* labels, sizes m) {
      for (index i = 0; i != m.batch; ++i)
        predict_element(i, loss, g, h, w2, labels, m);
    },
    [](work& w, float* loss, float* g, const float* h, const float* w2, const float* labels, sizes m) {
      w.reads(h, floats(m.batch * m.hidden)).reads(w2, floats(m.hidden)).reads(labels, floats(m.batch));
      w.overwrites(loss, floats(m.batch)).overwrites(g, floats(m.batch));
    }};
inline const kernel hidden_back{
    "hidden_back",
    [](float* dh, const float* g, const float* h, const float* w2, sizes m) {
      for (index i = 0; i != m.batch * m.hidden; ++i)
        hidden_back_element(i, dh, g, h, w2, m);
    },
    [](work& w, float* dh, const float* g, const float* h, const float* w2, sizes m) {
      w.reads(g, floats(m.batch)).reads(h, floats(m.batch * m.hidden)).reads(w2, floats(m.hidden));
      w.overwrites(dh, floats(m.batch * m.hidden));
    }};
inline const kernel learn_w2{
    "learn_w2",
    [](float* w2, const float* g, const float* h, sizes m) {
      for (index j = 0; j != m.hidden; ++j)
        w2_element(j, w2, g, h, m);
    },
    [](work& w, float* w2, const float* g, const float* h, sizes m) {
      w.reads(g, floats(m.batch)).reads(h, floats(m.batch * m.hidden)).updates(w2, floats(m.hidden));
    }};
inline const kernel input_back{
    "input_back",
    [](float* dx, const float* dh, const float* w1, sizes m) {
      for (index i = 0; i != m.batch * m.inputs(); ++i)
        input_back_element(i, dx, dh, w1, m);
    },
    [](work& w, float* dx, const float* dh, const float* w1, sizes m) {
      w.reads(dh, floats(m.batch * m.hidden)).reads(w1, floats(m.inputs() * m.hidden));
      w.overwrites(dx, floats(m.batch * m.inputs())).flops(products(m.batch, m.inputs(), m.hidden));
    }};
inline const kernel learn_w1{
    "learn_w1",
    [](float* w1, const float* x, const float* dh, sizes m) {
      for (index i = 0; i != m.inputs() * m.hidden; ++i)
        w1_element(i, w1, x, dh, m);
    },
    [](work& w, float* w1, const float* x, const float* dh, sizes m) {
      w.reads(x, floats(m.batch * m.inputs())).reads(dh, floats(m.batch * m.hidden));
      w.updates(w1, floats(m.inputs() * m.hidden)).flops(products(m.batch, m.inputs(), m.hidden));
    }};
inline const kernel learn_w0{
    "learn_w0",
    [](float* w0, const float* dx, const float* x, const float* dense, sizes m) {
      for (index i = 0; i != m.features * m.weights(); ++i)
        w0_element(i, w0, dx, x, dense, m);
    },
    [](work& w, float* w0, const float* dx, const float* x, const float* dense, sizes m) {
      w.reads(dx, floats(m.batch * m.inputs())).reads(x, floats(m.batch * m.inputs()));
      w.reads(dense, floats(m.batch * m.features)).updates(w0, floats(m.features * m.weights()));
    }};
inline const kernel adagrad{
    "adagrad",
    [](float* table, const float* dx, const index* unique, const index* first, const index* users, index t, index count,
       sizes m) {
      for (index u = 0; u != count; ++u)
        adagrad_row(u, table, dx, unique, first, users, t, m);
    },
    [](work& w, float* table, const float* dx, const index* unique, const index* first, const index* users, index,
       index count, sizes m) {
      w.reads(unique, indices(count)).reads(first, indices(count + 1)).reads(users, indices(m.batch * m.bag));
      w.reads(dx, floats(m.batch * m.inputs()));
      for (index u = 0; u != count; ++u) {
        w.updates(table + static_cast<std::int64_t>(unique[u]) * m.width, floats(m.width));
      }
    }};

}  // namespace sim_kernels
}  // namespace recommender
