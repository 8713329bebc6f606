#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "compact/io/checkpoint.h"
#include "compact/io/json.h"

namespace compact::inspect {

/// Longest list that is printed whole; a longer one is cut, with a count of the rest.
inline constexpr std::size_t kLongestList = 24;

/// One line "  name        value".
void line(std::string_view name, std::string_view value);
/// "1,234,567"
std::string grouped(std::int64_t number);
/// "12.3 MB"
std::string size_text(std::int64_t bytes);
/// A text from a file for the terminal: control characters replaced, cut after `longest` bytes.
std::string printable(std::string_view text, std::size_t longest = 100);

/// Each prints a title and some lines about one kind of file, and throws InputError where it is damaged.
void token_shard(const std::string& path);
void safetensors(const std::string& path);
void tokenizer(const std::string& path);
void json_file(const std::string& path);
void metrics(const std::string& path);
void text_file(const std::string& path);

/// The step and the files of a checkpoint.
void manifest_lines(const CheckpointManifest& manifest);
/// Lines about config.json of a model folder.
void model_lines(const std::filesystem::path& folder);
/// The members of a JSON object, one a line, inner objects as {key=value ...}.
void json_lines(const JsonValue& object);
/// Lines about the events of metrics.jsonl: how many, and the last of each kind.
void metrics_lines(const std::string& path);

}  // namespace compact::inspect
