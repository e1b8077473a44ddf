#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define RECOMMENDER_BOTH __host__ __device__ inline
#else
#define RECOMMENDER_BOTH inline
#endif

/// The arithmetic of the model, one element or row at a time: what a thread of a kernel does on a GPU, and one turn of
/// a loop on the simulated one. Sums are taken in a fixed order, so that the same look-ups give the same bits.
namespace recommender {

using index = std::int32_t;

/// Sizes of the model. A row of a table has `width` floats: the weights, and last the sum of squared gradients of
/// AdaGrad.
struct sizes {
  index batch = 64;
  index tables = 26;
  index rows = 16384;  ///< of each table
  index bag = 4;       ///< rows that are added up for a sample and table
  index width = 64;
  index features = 13;  ///< dense ones
  index hidden = 32;
  float rate = 0.05F;

  [[nodiscard]] RECOMMENDER_BOTH index weights() const { return width - 1; }
  /// What the upper net takes of a sample: its dense part, and one vector from each table.
  [[nodiscard]] RECOMMENDER_BOTH index inputs() const { return (tables + 1) * weights(); }
};

/// x[sample][1 + t] = the sum of the sample's rows of table t. i: sample and weight.
RECOMMENDER_BOTH void embed_element(index i, float* x, const float* table, const index* rows, index t, const sizes& m) {
  const index sample = i / m.weights();
  const index d = i % m.weights();
  float sum = 0;
  for (index l = 0; l != m.bag; ++l) {
    sum += table[static_cast<std::int64_t>(rows[sample * m.bag + l]) * m.width + d];
  }
  x[sample * m.inputs() + (t + 1) * m.weights() + d] = sum;
}
/// x[sample][0] = relu(dense[sample] w0).
RECOMMENDER_BOTH void bottom_element(index i, float* x, const float* dense, const float* w0, const sizes& m) {
  const index sample = i / m.weights();
  const index d = i % m.weights();
  float sum = 0;
  for (index f = 0; f != m.features; ++f) {
    sum += dense[sample * m.features + f] * w0[f * m.weights() + d];
  }
  x[sample * m.inputs() + d] = sum > 0 ? sum : 0;
}
/// h = relu(x w1).
RECOMMENDER_BOTH void hidden_element(index i, float* h, const float* x, const float* w1, const sizes& m) {
  const index sample = i / m.hidden;
  float sum = 0;
  for (index k = 0; k != m.inputs(); ++k) {
    sum += x[sample * m.inputs() + k] * w1[k * m.hidden + i % m.hidden];
  }
  h[i] = sum > 0 ? sum : 0;
}
/// loss[sample], and g[sample], its derivative by the logit h w2.
RECOMMENDER_BOTH void predict_element(index i, float* loss, float* g, const float* h, const float* w2,
                                      const float* labels, const sizes& m) {
  float logit = 0;
  for (index j = 0; j != m.hidden; ++j) {
    logit += h[i * m.hidden + j] * w2[j];
  }
  const float clicked = 1 / (1 + std::exp(-logit));
  loss[i] = -(labels[i] > 0 ? std::log(clicked + 1e-7F) : std::log(1 - clicked + 1e-7F));
  g[i] = (clicked - labels[i]) / static_cast<float>(m.batch);
}
/// dh, of the sums before the relu.
RECOMMENDER_BOTH void hidden_back_element(index i, float* dh, const float* g, const float* h, const float* w2,
                                          const sizes& m) {
  dh[i] = h[i] > 0 ? g[i / m.hidden] * w2[i % m.hidden] : 0;
}
RECOMMENDER_BOTH void w2_element(index j, float* w2, const float* g, const float* h, const sizes& m) {
  float sum = 0;
  for (index b = 0; b != m.batch; ++b) {
    sum += g[b] * h[b * m.hidden + j];
  }
  w2[j] -= m.rate * sum;
}
RECOMMENDER_BOTH void input_back_element(index i, float* dx, const float* dh, const float* w1, const sizes& m) {
  const index sample = i / m.inputs();
  const index k = i % m.inputs();
  float sum = 0;
  for (index j = 0; j != m.hidden; ++j) {
    sum += dh[sample * m.hidden + j] * w1[k * m.hidden + j];
  }
  dx[i] = sum;
}
RECOMMENDER_BOTH void w1_element(index i, float* w1, const float* x, const float* dh, const sizes& m) {
  const index k = i / m.hidden;
  float sum = 0;
  for (index b = 0; b != m.batch; ++b) {
    sum += x[b * m.inputs() + k] * dh[b * m.hidden + i % m.hidden];
  }
  w1[i] -= m.rate * sum;
}
RECOMMENDER_BOTH void w0_element(index i, float* w0, const float* dx, const float* x, const float* dense,
                                 const sizes& m) {
  const index d = i % m.weights();
  float sum = 0;
  for (index b = 0; b != m.batch; ++b) {
    sum += x[b * m.inputs() + d] > 0 ? dx[b * m.inputs() + d] * dense[b * m.features + i / m.weights()] : 0;
  }
  w0[i] -= m.rate * sum;
}
/// AdaGrad of one row of table t that the batch looks up, once, however often it does: no atomics. u: which of these
/// rows; its samples are users[first[u]] up to users[first[u + 1]].
RECOMMENDER_BOTH void adagrad_row(index u, float* table, const float* dx, const index* unique, const index* first,
                                  const index* users, index t, const sizes& m) {
  float* const row = table + static_cast<std::int64_t>(unique[u]) * m.width;
  const auto gradient = [&](index d) {
    float sum = 0;
    for (index s = first[u]; s != first[u + 1]; ++s) {
      sum += dx[users[s] * m.inputs() + (t + 1) * m.weights() + d];
    }
    return sum;
  };
  float squares = 0;
  for (index d = 0; d != m.weights(); ++d) {
    squares += gradient(d) * gradient(d);
  }
  row[m.weights()] += squares / static_cast<float>(m.weights());
  const float step = m.rate / std::sqrt(row[m.weights()] + 1e-8F);
  for (index d = 0; d != m.weights(); ++d) {
    row[d] -= step * gradient(d);
  }
}

}  // namespace recommender
