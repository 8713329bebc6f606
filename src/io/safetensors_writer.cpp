#include "safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <set>

#include "compact/core/error.h"

namespace compact {

namespace {

/// The header, padded with spaces to a multiple of 8 so that the data of every tensor of 8-byte size is
/// aligned.
std::string header_text(const std::vector<NamedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + nlohmann::json(metadata).dump() + ",";
  std::set<std::string> names;
  std::int64_t at = 0;
  for (const auto& [name, data] : tensors) {
    require(!name.empty() && name != "__metadata__" && names.insert(name).second, "write_safetensors",
            "a tensor's name is empty or used twice");
    require(data.contiguous() && (data.data != nullptr || data.elements() == 0), "write_safetensors",
            "needs contiguous memory to write from");
    text += nlohmann::json(name).dump() +
            fmt::format(R"(:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}},)", name_of(data.dtype),
                        data.shape.text(), at, at + data.bytes());
    at += data.bytes();
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
  for (const NamedTensor& t : tensors)
    file.write(read ? read(t.data) : t.data.data, static_cast<std::size_t>(t.data.bytes()));
  return file.close();
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_hashed_safetensors(path, tensors, metadata, {});
}

}  // namespace compact
