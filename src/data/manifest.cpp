#include <filesystem>
#include <nlohmann/json.hpp>

#include "compact/core/error.h"
#include "compact/data/token_shard.h"
#include "compact/io/file.h"

namespace compact {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMaxIds = std::int64_t{1} << 31;

const Json& member(const Json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end()) input_error("the data manifest {} has no key \"{}\"; tokenize again", path, key);
  return *found;
}

std::int64_t whole(const Json& object, const char* key, std::int64_t least, std::int64_t most,
                   const std::string& path) {
  const Json& value = member(object, key, path);
  // An unsigned value that does not fit would wrap, so it is compared as what it is.
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) ||
      value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    input_error("the data manifest {}: \"{}\" must be a whole number from {} to {}, found {}", path, key,
                least, most, value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
  return value.get<std::int64_t>();
}

std::string text(const Json& object, const char* key, const std::string& path) {
  const Json& value = member(object, key, path);
  if (!value.is_string()) input_error("the data manifest {}: \"{}\" must be a text", path, key);
  return value.get<std::string>();
}

// The name of a file in the manifest's own folder.
std::string file_name(const Json& object, const char* key, const std::string& path) {
  const std::string name = text(object, key, path);
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
      name.find('\0') != name.npos)
    input_error("the data manifest {}: \"{}\" must be a plain file name without a folder", path, key);
  return name;
}

}  // namespace

DataManifest read_manifest(const std::string& path) {
  Json json;
  try {
    json = Json::parse(read_text(path));
  } catch (const Json::parse_error& error) {
    input_error("the data manifest {} is not valid JSON near byte {}; tokenize again", path, error.byte);
  }
  if (!json.is_object()) input_error("the data manifest {} is no JSON object; tokenize again", path);
  DataManifest m;
  m.path = path;
  whole(json, "version", kVersion, kVersion, path);
  m.vocab_size = whole(json, "vocab_size", 1, kMaxIds, path);
  const Json& tokenizer = member(json, "tokenizer", path);
  if (!tokenizer.is_object()) input_error("the data manifest {}: \"tokenizer\" must be an object", path);
  m.tokenizer_file = file_name(tokenizer, "file", path);
  m.tokenizer_xxh3 = text(tokenizer, "xxh3", path);
  m.end_of_text = whole(json, "end_of_text_id", 0, m.vocab_size - 1, path);
  const std::string layout = text(json, "layout", path);
  if (layout != "packed" && layout != "rows")
    input_error("the data manifest {}: \"layout\" must be \"packed\" or \"rows\", found \"{}\"", path,
                layout);
  m.rows = layout == "rows";
  if (m.rows) {
    m.row_length = whole(json, "row_length", 1, kMaxIds, path);
    m.padding_id = whole(json, "padding_id", 0, m.vocab_size - 1, path);
  }
  const Json& shards = member(json, "shards", path);
  if (!shards.is_array()) input_error("the data manifest {}: \"shards\" must be a list", path);
  for (const Json& shard : shards) {
    if (!shard.is_object()) input_error("the data manifest {}: each of \"shards\" must be an object", path);
    DataManifest::Entry entry;
    entry.file = file_name(shard, "file", path);
    entry.tokens = whole(shard, "tokens", 1, kMaxIds, path);
    entry.documents = whole(shard, "documents", 0, entry.tokens, path);
    entry.xxh3 = text(shard, "xxh3", path);
    m.shards.push_back(entry);
  }
  return m;
}

void write_manifest(const DataManifest& m) {
  Json json;
  json["version"] = kVersion;
  json["vocab_size"] = m.vocab_size;
  json["tokenizer"] = {{"file", m.tokenizer_file}, {"xxh3", m.tokenizer_xxh3}};
  json["end_of_text_id"] = m.end_of_text;
  json["layout"] = m.rows ? "rows" : "packed";
  if (m.rows) {
    json["row_length"] = m.row_length;
    json["padding_id"] = m.padding_id;
  }
  json["shards"] = Json::array();
  for (const DataManifest::Entry& e : m.shards)
    json["shards"].push_back(
        {{"file", e.file}, {"tokens", e.tokens}, {"documents", e.documents}, {"xxh3", e.xxh3}});
  write_text_atomically(m.path, json.dump(2) + "\n");
}

}  // namespace compact
