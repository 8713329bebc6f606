#include "compact/core/tensor.h"

#include <cstddef>

#include "compact/core/error.h"

namespace compact {

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  require(dims.size() <= dims_.size(), "Shape", "more than four dimensions");
  for (std::int64_t d : dims) dims_[static_cast<std::size_t>(rank_++)] = d;
}

std::int64_t Shape::elements() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= (*this)[i];
  return rank_ == 0 ? 0 : n;
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i)
    if ((*this)[i] != other[i]) return false;
  return true;
}

std::string Shape::text() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string((*this)[i]);
  return s + "]";
}

namespace {
void* offset(const Tensor& t, std::int64_t elements) {
  // The plan device has no memory: a view of nothing is nothing.
  return t.data == nullptr ? nullptr : static_cast<std::byte*>(t.data) + elements * size_of(t.dtype);
}
}  // namespace

Tensor Tensor::reshaped(Shape to) const {
  require(contiguous() && to.elements() == elements(), "Tensor::reshaped", "not contiguous or another size");
  return Tensor(data, to, dtype);
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  require(begin >= 0 && count >= 0 && begin + count <= cols(), "Tensor::columns", "out of range");
  Tensor t(offset(*this, begin), Shape{rows(), count}, dtype);
  t.ld = ld;
  return t;
}

Tensor Tensor::row_range(std::int64_t begin, std::int64_t count) const {
  require(begin >= 0 && count >= 0 && begin + count <= rows(), "Tensor::row_range", "out of range");
  Tensor t(offset(*this, begin * ld), Shape{count, cols()}, dtype);
  t.ld = ld;
  return t;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t count) const {
  require(contiguous() && begin >= 0 && count >= 0 && begin + count <= elements(), "Tensor::slice",
          "out of range");
  return Tensor(offset(*this, begin), Shape{count}, dtype);
}

}  // namespace compact
