#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "compact/core/dtype.h"

namespace compact {

/// Up to four dimensions, sizes in 64 bits.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const;
  std::int64_t last() const { return rank_ == 0 ? 1 : dims_[static_cast<std::size_t>(rank_ - 1)]; }
  bool operator==(const Shape& other) const;
  /// "[2048, 512]"
  std::string text() const;

 private:
  std::array<std::int64_t, 4> dims_{};
  int rank_ = 0;
};

/// A non-owning view of memory of an arena. The last dimension is contiguous; all others are folded into
/// rows that lie `ld` elements apart, so that a block of columns is a view as well.
/// On the plan device `data` is null and nothing may read it.
struct Tensor {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::F32;
  std::int64_t ld = 0;  ///< elements from one row to the next; cols() when contiguous

  Tensor() = default;
  Tensor(void* data_, Shape shape_, DType dtype_)
      : data(data_), shape(shape_), dtype(dtype_), ld(shape_.last()) {}

  std::int64_t elements() const { return shape.elements(); }
  std::int64_t cols() const { return shape.last(); }
  std::int64_t rows() const { return cols() == 0 ? 0 : elements() / cols(); }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
  bool contiguous() const { return ld == cols(); }
  /// True for a default-made view: "there is no such tensor".
  bool empty() const { return shape.rank() == 0; }

  /// The elements as T: float, Bf16, std::int32_t or double, which must be what dtype says.
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  float* f32() const { return static_cast<float*>(data); }
  std::int32_t* i32() const { return static_cast<std::int32_t*>(data); }

  /// The same memory under another shape of equal size; needs a contiguous view.
  Tensor reshaped(Shape to) const;
  /// Columns [begin, begin + count) of every row: [rows, count].
  Tensor columns(std::int64_t begin, std::int64_t count) const;
  /// Rows [begin, begin + count): [count, cols].
  Tensor row_range(std::int64_t begin, std::int64_t count) const;
  /// Elements [begin, begin + count) of a contiguous view: [count].
  Tensor slice(std::int64_t begin, std::int64_t count) const;
};

}  // namespace compact
