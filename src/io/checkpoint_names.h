#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace compact {

inline constexpr std::string_view manifest_format = "compact-checkpoint";
inline constexpr std::int64_t manifest_version = 1;

/// The step of "step_" and at least eight digits, as checkpoint_name writes it; nothing for any other name.
std::optional<std::int64_t> step_of_checkpoint_name(std::string_view name);

/// True for the files that a checkpoint has by itself, whatever its tokenizer is called.
bool is_checkpoint_file(std::string_view name);

/// "a/b/" as "a/b".
std::filesystem::path without_slash(const std::string& path);

/// The folder that holds `path`; "." for a bare name.
std::filesystem::path parent_of(const std::filesystem::path& path);

}  // namespace compact
