#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compact/core/tensor.h"
#include "compact/io/file.h"

namespace compact {

/// One tensor of a safetensors file.
struct StoredTensor {
  std::string dtype;  ///< as in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  ///< bytes from the start of the file
};

/// A tensor of a file as it lies in memory: contiguous, as a whole or as a run of its elements.
struct NamedTensor {
  std::string name;
  Tensor data;
  Shape file_shape = {};   ///< in the file; empty: that of `data`
  std::int64_t first = 0;  ///< element of the file's tensor at which `data` begins

  const Shape& shape() const { return file_shape.rank() == 0 ? data.shape : file_shape; }
  bool whole() const { return data.elements() == shape().elements(); }
};

/// Reads files in the safetensors format (8-byte little-endian header length, JSON header, data). The header
/// is checked whole at opening: length, JSON, duplicate names, types, shapes (no overflow), offsets in range,
/// without overlap, gap or trailing bytes. Throws InputError naming the file and the tensor.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  /// Reads the elements that `to` is of its tensor (contiguous; F32 or BF16, from F32, BF16 or F16, rounded
  /// to nearest), and nothing else. The file must hold exactly its shape, which the message names next to the
  /// found one.
  void read(const NamedTensor& to) const;
  void read(const std::string& name, const Tensor& to) const { read({name, to}); }

 private:
  InputFile file_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Gives all elements of a tensor, of which some may lie elsewhere; valid until its next call.
using HostReader = std::function<const void*(const NamedTensor&)>;

/// Writes `tensors` in the given order to `path`, flushed to the disk (fsync): whole ones in host memory. The
/// data is streamed; the header is padded to a multiple of 8. Throws RunError that names the file and the
/// system's reason.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace compact
