#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/slot_index.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

namespace deepum {
inline namespace v0 {

/// Size of a UM block correlation table. The defaults are those of the paper.
struct block_table_shape {
  std::uint32_t rows = 2048;
  std::uint32_t ways = 2;        ///< blocks that a row remembers
  std::uint32_t successors = 4;  ///< of each block

  friend constexpr bool operator==(const block_table_shape&, const block_table_shape&) = default;
};

/// The UM block correlation table of one execution ID (DeepUM, section 4.2): which block is missed after which.
///
/// Set-associative: a block belongs to row `block mod rows`, which remembers the blocks of that row recorded last. Each
/// block has successors in MRU order, the oldest of which falls out. One level. A row takes memory once it is used.
///
/// Not synchronised.
class block_table {
 public:
  /// @errors  `status::invalid_argument` where a number of the shape is 0.
  explicit block_table(block_table_shape shape = {}) : shape_(shape) {
    if (shape.rows == 0 || shape.ways == 0 || shape.successors == 0) {
      throw error(status::invalid_argument,
                  "a UM block correlation table needs at least one row, one way and one successor");
    }
  }

  /// A miss on `from` was followed by one on `to`, which becomes the first successor of `from`.
  ///
  /// `from` becomes the block of its row used last. Where the row is full, the one used least recently makes way.
  void record(block_id from, block_id to) {
    expects(from != nothing && to != nothing, "a block of this number cannot be kept in a block table");
    block_id* const row = find_or_add_row(from);
    block_id* const row_end = row + row_length();
    block_id* way = row;
    while (*way != from && way + way_length() != row_end) {
      way += way_length();
    }
    if (*way != from) {
      std::fill_n(way, way_length(), nothing);
      *way = from;
    }
    std::rotate(row, way, way + way_length());
    block_id* const first = row + 1;
    block_id* const last = row + shape_.successors;
    block_id* const place = std::find(first, last, to);
    std::rotate(first, place, place + 1);
    *first = to;
  }

  /// The blocks that followed a block, most recently recorded first. Valid until the next `record`.
  ///
  /// To ask does not count as use.
  [[nodiscard]] std::span<const block_id> successors(block_id block) const {
    const std::uint32_t slot = find_row(block);
    if (slot == detail::slot_index::none || block == nothing) {
      return {};
    }
    const block_id* const row = cells_.data() + slot * row_length();
    for (const block_id* way = row; way != row + row_length(); way += way_length()) {
      if (*way == block) {
        const block_id* const first = way + 1;
        return {first, std::find(first, way + way_length(), nothing)};
      }
    }
    return {};
  }

  /// The block at which a chain enters this launch; nothing where none has been set.
  [[nodiscard]] std::optional<block_id> start() const { return start_; }
  /// The block at which a chain leaves this launch; nothing where none has been set.
  [[nodiscard]] std::optional<block_id> end() const { return end_; }
  void set_start(block_id block) { start_ = block; }
  void set_end(block_id block) { end_ = block; }

  [[nodiscard]] block_table_shape shape() const { return shape_; }

  /// Appends the rows in use, the start block and the end block.
  void save(archive_writer& out) const {
    out.section(tag, [&] {
      out.put(shape_.rows);
      out.put(shape_.ways);
      out.put(shape_.successors);
      out.put(start_.value_or(nothing).value);
      out.put(end_.value_or(nothing).value);
      out.put(std::uint64_t{row_numbers_.size()});
      out.put_bytes(row_numbers_.data(), row_numbers_.size() * sizeof(row_numbers_[0]));
      out.put_bytes(cells_.data(), cells_.size() * sizeof(cells_[0]));
    });
  }
  /// A table that was saved.
  /// @param shape   It must be of this shape.
  /// @param blocks  Of the arena; it may name no others.
  /// @errors        `status::bad_format`.
  [[nodiscard]] static block_table load(archive_reader& in, block_table_shape shape, std::uint32_t blocks) {
    return in.section(tag, [&] {
      block_table table(shape);
      const auto get_block = [&] {
        const block_id b{in.get<std::uint32_t>()};
        if (b != nothing && b.value >= blocks) {
          in.refuse("a block table names a block that the arena does not have");
        }
        return b;
      };
      const block_table_shape saved{in.get<std::uint32_t>(), in.get<std::uint32_t>(), in.get<std::uint32_t>()};
      if (saved != shape) {
        in.refuse("block tables of " + std::to_string(saved.rows) + " rows, " + std::to_string(saved.ways) +
                  " ways and " + std::to_string(saved.successors) + " successors");
      }
      for (std::optional<block_id>* end : {&table.start_, &table.end_}) {
        if (const block_id b = get_block(); b != nothing) {
          *end = b;
        }
      }
      const std::size_t rows = in.get_count(sizeof(std::uint32_t));
      if (rows > shape.rows) {
        in.refuse("more rows than a block table has");
      }
      for (std::uint32_t slot = 0; slot < rows; ++slot) {
        const auto row = in.get<std::uint32_t>();
        if (row >= shape.rows || table.find_row(block_id{row}) != detail::slot_index::none) {
          in.refuse("a row of a block table is there twice, or beyond its end");
        }
        table.row_numbers_.push_back(row);
        table.row_index_.insert(row, slot);
      }
      for (const std::uint32_t row : table.row_numbers_) {
        // Ways in use come first, and have a block of the row and at least one successor; successors come first too.
        bool way_before = true;
        for (std::uint32_t way = 0; way != shape.ways; ++way) {
          bool cell_before = way_before;
          for (std::size_t i = 0; i != table.way_length(); ++i) {
            const block_id b = get_block();
            const bool required = i == 0 ? way == 0 : i == 1 && cell_before;
            if (b == nothing ? required : !cell_before || (i == 0 && b.value % shape.rows != row)) {
              in.refuse("a row of a block table is not as it is written");
            }
            cell_before = b != nothing;
            way_before = i == 0 ? cell_before : way_before;
            table.cells_.push_back(b);
          }
        }
      }
      return table;
    });
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{cells_.capacity() * sizeof(block_id) + row_numbers_.capacity() * sizeof(std::uint32_t)} +
           row_index_.memory();
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("blco");

  // A row is its ways, most recently used first; a way is its block and its successors, the rest filled with nothing.
  static constexpr block_id nothing{std::numeric_limits<std::uint32_t>::max()};

  [[nodiscard]] std::size_t way_length() const { return std::size_t{1} + shape_.successors; }
  [[nodiscard]] std::size_t row_length() const { return shape_.ways * way_length(); }

  [[nodiscard]] std::uint32_t find_row(block_id block) const {
    const std::uint32_t row = block.value % shape_.rows;
    return row_index_.find(row, [&](std::uint32_t slot) { return row_numbers_[slot] == row; });
  }
  [[nodiscard]] block_id* find_or_add_row(block_id block) {
    std::uint32_t slot = find_row(block);
    if (slot == detail::slot_index::none) {
      slot = static_cast<std::uint32_t>(row_numbers_.size());
      cells_.resize(cells_.size() + row_length(), nothing);
      row_numbers_.push_back(block.value % shape_.rows);
      row_index_.insert(row_numbers_.back(), slot);
    }
    return cells_.data() + slot * row_length();
  }

  block_table_shape shape_;
  std::optional<block_id> start_{};
  std::optional<block_id> end_{};
  sequence<block_id> cells_{};             // rows in the order in which they came into use
  sequence<std::uint32_t> row_numbers_{};  // of those
  detail::slot_index row_index_{};         // row number -> place in those
};

}  // namespace v0
}  // namespace deepum
