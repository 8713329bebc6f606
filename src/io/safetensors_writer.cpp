#include "safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <set>

#include "compact/core/error.h"

namespace compact {

namespace {

std::int64_t file_bytes(const NamedTensor& t) { return t.shape().elements() * size_of(t.data.dtype); }

/// The header, padded with spaces to a multiple of 8 so that the data of every tensor of 8-byte size is
/// aligned.
std::string header_text(const std::vector<NamedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + nlohmann::json(metadata).dump() + ",";
  std::set<std::string> names;
  std::int64_t at = 0;
  for (const NamedTensor& t : tensors) {
    require(!t.name.empty() && t.name != "__metadata__" && names.insert(t.name).second, "write_safetensors",
            "a tensor's name is empty or used twice");
    require(t.data.contiguous() && (t.data.data != nullptr || t.data.elements() == 0), "write_safetensors",
            "needs contiguous memory to write from");
    text += nlohmann::json(t.name).dump() +
            fmt::format(R"(:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}},)", name_of(t.data.dtype),
                        t.shape().text(), at, at + file_bytes(t));
    at += file_bytes(t);
  }
  if (text.back() == ',') text.pop_back();
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

FileDigest write_hashed_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata,
                                    const HostReader& read) {
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t length = header.size();
  HashedFile file(path);
  file.write(&length, sizeof length);
  file.write(header);
  for (const NamedTensor& t : tensors) {
    require(read || t.whole(), "write_safetensors", "needs a reader for what is not all here");
    file.write(read ? read(t) : t.data.data, static_cast<std::size_t>(file_bytes(t)));
  }
  return file.close();
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_hashed_safetensors(path, tensors, metadata, {});
}

}  // namespace compact
