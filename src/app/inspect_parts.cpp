#include "inspect_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <vector>

#include "compact/core/error.h"
#include "compact/data/token_shard.h"
#include "compact/data/tokenizer.h"
#include "compact/io/file.h"
#include "compact/io/safetensors.h"
#include "compact/model/config.h"

namespace compact::inspect {

namespace {

std::string number_list(const std::vector<std::int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

/// A value on one line: objects as {key=value ...}, long lists by their length, fractions short.
std::string value_text(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  if (value.kind == Kind::Text) return value.text.empty() ? "\"\"" : printable(value.text);
  if (value.kind == Kind::Number && value.text.find_first_of(".eE") != std::string::npos)
    return fmt::format("{:.6g}", value.number);
  if (value.kind == Kind::List &&
      (value.items.size() > 8 || (!value.items.empty() && value.items[0].kind == Kind::Object)))
    return fmt::format("{} entries", value.items.size());
  if (value.kind != Kind::Object) return printable(value.shown());
  std::string text = "{";
  for (std::size_t i = 0; i < value.names.size() && text.size() < 200; ++i)
    text += fmt::format("{}{}={}", i ? " " : "", value.names[i], value_text(value.items[i]));
  return printable(text + "}", 160);
}

void rest(std::size_t all) {
  if (all > kLongestList) fmt::print("  ... and {} more\n", all - kLongestList);
}

/// Every shard of a data manifest is there with its number of tokens and its hash. Throws InputError.
void check_shards(const std::string& path) {
  const DataManifest manifest = read_manifest(path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const DataManifest::Entry& entry : manifest.shards) {
    const std::string file = (folder / entry.file).string();
    if (const std::int64_t found = TokenShard(file).tokens(); found != entry.tokens)
      input_error("{}: holds {} tokens, {} says {}", file, found, path, entry.tokens);
    if (const std::string found = xxh3_of_file(file); found != entry.xxh3)
      input_error("{}: its hash is {}, {} says {}; the shard was changed", file, found, path, entry.xxh3);
  }
  line("shards", "tokens and hashes hold");
}

/// The shards of a data manifest.
void shard_lines(const JsonValue& shards) {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < shards.items.size(); ++i) {
    const JsonValue& shard = shards.items[i];
    const JsonValue* count = shard.find("tokens");
    if (count != nullptr && count->kind == JsonValue::Kind::Number)
      tokens += json_integer(*count, "tokens", {});
    if (i < kLongestList) fmt::print("  {}\n", value_text(shard));
  }
  rest(shards.items.size());
  line("tokens", grouped(tokens));
}

/// One line of metrics.jsonl, which has a text "event".
JsonValue event_of(const std::string& path, std::int64_t number, const std::string& text) {
  try {
    JsonValue event = parse_json(text, path);
    const JsonValue* kind = event.kind == JsonValue::Kind::Object ? event.find("event") : nullptr;
    if (kind != nullptr && kind->kind == JsonValue::Kind::Text) return event;
  } catch (const InputError&) {  // it counts lines of the text it was given; ours is told below
  }
  input_error(
      "{}: line {} is no JSON object with a text \"event\", so this is no metrics file or it is damaged",
      path, number);
}

}  // namespace

void line(std::string_view name, std::string_view value) { fmt::print("  {:<14} {}\n", name, value); }

std::string grouped(std::int64_t number) {
  std::string text = fmt::format("{}", number);
  const auto first = text.starts_with('-') ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > first; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

std::string size_text(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < std::size(units); ++unit) value /= 1000.0;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string printable(std::string_view text, std::size_t longest) {
  std::string cut(text.substr(0, longest));
  if (text.size() > longest) {
    // Not in the middle of a character.
    while (!cut.empty() && (static_cast<unsigned char>(text[cut.size()]) & 0xc0) == 0x80) cut.pop_back();
    cut += "...";
  }
  std::replace_if(
      cut.begin(), cut.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return cut;
}

void token_shard(const std::string& path) {
  const TokenShard shard(path);
  const std::int64_t shown = std::min<std::int64_t>(shard.tokens(), 16);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(shown));
  shard.read(0, shown, ids.data(), 0);
  fmt::print("{}: token shard\n", path);
  line("format",
       shard.bytes_per_token() == 2 ? "llm.c version 1, uint16 tokens" : "llm.c version 7, uint32 tokens");
  line("tokens", grouped(shard.tokens()));
  line("first ids", fmt::format("{}{}", fmt::join(ids, " "), shard.tokens() > shown ? " ..." : ""));
}

void safetensors(const std::string& path) {
  const SafetensorsReader file(path);
  fmt::print("{}: safetensors\n", path);
  for (const auto& [key, value] : file.metadata()) line(printable(key, 40), printable(value));
  std::vector<std::pair<std::string, StoredTensor>> order(file.tensors().begin(), file.tensors().end());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second.begin < b.second.begin; });
  std::int64_t elements = 0, bytes = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [name, t] = order[i];
    std::int64_t count = 1;
    for (const std::int64_t d : t.shape) count *= d;
    elements += count;
    bytes += t.end - t.begin;
    if (i < kLongestList) fmt::print("  {:<4} {:<16} {}\n", t.dtype, number_list(t.shape), name);
  }
  rest(order.size());
  line("in all",
       fmt::format("{} tensors, {} elements, {}", order.size(), grouped(elements), size_text(bytes)));
}

void tokenizer(const std::string& path) {
  const Tokenizer model(path);
  fmt::print("{}: SentencePiece tokenizer\n", path);
  line("vocabulary", grouped(model.vocab_size()));
  const auto id = [](std::int32_t value) {
    return value < 0 ? std::string("none") : fmt::format("{}", value);
  };
  line("control ids",
       fmt::format("begin {}, end {}, padding {}", id(model.bos()), id(model.eos()), id(model.pad())));
}

void json_lines(const JsonValue& object) {
  std::size_t width = 14;
  for (const std::string& name : object.names)
    width = std::min<std::size_t>(std::max(width, name.size()), 32);
  for (std::size_t i = 0; i < object.names.size() && i < kLongestList; ++i)
    fmt::print("  {:<{}} {}\n", printable(object.names[i], 32), width, value_text(object.items[i]));
  rest(object.names.size());
}

void json_file(const std::string& path) {
  const JsonValue root = parse_json(read_text(path), path);
  const JsonValue* shards = root.kind == JsonValue::Kind::Object ? root.find("shards") : nullptr;
  if (shards != nullptr && shards->kind == JsonValue::Kind::List && root.find("vocab_size") != nullptr) {
    fmt::print("{}: manifest of token shards\n", path);
    json_lines(root);
    shard_lines(*shards);
    check_shards(path);
    return;
  }
  if (std::filesystem::path(path).filename() == "MANIFEST.json") {
    fmt::print("{}: manifest of a checkpoint\n", path);
    manifest_lines(read_checkpoint_manifest(std::filesystem::path(path).parent_path().string()));
    return;
  }
  fmt::print("{}: JSON\n", path);
  if (root.kind == JsonValue::Kind::Object) {
    json_lines(root);
  } else {
    line("value", value_text(root));
  }
}

void manifest_lines(const CheckpointManifest& manifest) {
  line("step", fmt::format("{}", manifest.step));
  for (const auto& file : manifest.files)
    line("file", fmt::format("{} ({}, xxh3 {})", printable(file.name), size_text(file.bytes), file.xxh3));
}

void model_lines(const std::filesystem::path& folder) {
  const ModelConfig c = load_model_config((folder / "config.json").string());
  line("architecture",
       fmt::format("LLaMA, {} layers, hidden {}, MLP {}, heads {} (key/value {}), vocabulary {}", c.layers,
                   c.hidden_size, c.intermediate_size, c.heads, c.kv_heads, c.vocab_size));
  line("parameters", grouped(c.parameters()));
}

void metrics_lines(const std::string& path) {
  const InputFile checked(path);  // a regular file
  std::ifstream in(path);
  std::map<std::string, std::int64_t> counts;
  std::map<std::string, JsonValue> last;
  std::int64_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (in.eof()) break;  // no newline at its end: a run was killed while it wrote this line
    JsonValue event = event_of(path, number, text);
    const std::string kind = event.find("event")->text;
    ++counts[kind];
    last[kind] = std::move(event);
  }
  std::string summary;
  for (const auto& [kind, count] : counts)
    summary += fmt::format("{}{} {}", summary.empty() ? "" : ", ", count, kind);
  line("events", summary.empty() ? "none" : printable(summary));
  for (const char* kind : {"step", "eval", "end"})
    if (last.contains(kind)) line(fmt::format("last {}", kind), value_text(last[kind]));
}

void metrics(const std::string& path) {
  fmt::print("{}: metrics\n", path);
  metrics_lines(path);
}

void text_file(const std::string& path) {
  const InputFile checked(path);
  std::ifstream in(path);
  std::vector<std::string> ends;
  std::int64_t number = 0;
  for (std::string text; std::getline(in, text); ++number) {
    if (ends.size() == 6) ends.erase(ends.begin() + 3);  // the first three and the last three
    ends.push_back(printable(text));
  }
  fmt::print("{}: text\n", path);
  line("lines", grouped(number));
  for (const std::string& text : ends) fmt::print("  | {}\n", text);
}

}  // namespace compact::inspect
