#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compact/io/json.h"
#include "compact/train/run_config.h"

namespace compact {

/// Where a key's value lives in a RunConfig. The kind of the pointer is the type of the key.
using RunField =
    std::variant<bool*, std::int64_t*, std::uint64_t*, double*, std::string*, Period*, std::array<double, 2>*,
                 std::optional<double>*, std::optional<std::int64_t>*, std::vector<std::string>*>;

/// One key of the run file.
struct RunKey {
  std::string_view path;  ///< "optimizer.lr"
  RunField (*field)(RunConfig&);
  std::string_view about;  ///< one line for people
  JsonBounds bounds = {};
  std::vector<std::string_view> choices = {};  ///< texts that are possible; empty: any
  bool required = false;
  bool may_change = false;  ///< a resume may change it
  /// The key changes something only where the key `of` has one of `values`; always where `of` is empty.
  struct When {
    std::string_view of;
    std::vector<std::string_view> values;
  } when = {};

  std::string_view section() const;  ///< "optimizer"; empty at the top level
  std::string_view name() const;     ///< "lr"
};

/// Every key, in the order of config.resolved.json and of the reference page; keys of a section stand
/// together.
const std::vector<RunKey>& run_keys();
/// What a section is for; empty when there is no such section.
std::string_view about_section(std::string_view section);
const RunKey* find_run_key(std::string_view path);
std::vector<std::string_view> run_sections();

/// What the key accepts, in words: "an integer of at least 1".
std::string accepted_text(const RunKey& key);
/// Reads a value into its field; throws InputError.
void read_run_key(const RunKey& key, const JsonValue& value, RunConfig& config);
/// The field's value as JSON.
std::string run_key_json(const RunKey& key, const RunConfig& config);
/// False where another key's value makes this one idle.
bool run_key_matters(const RunKey& key, const RunConfig& config);

/// A sentence that helps with a key that does not exist: the nearest one, the right section, or what there
/// is.
std::string hint_for_unknown_key(std::string_view path);
/// "a, b or c"
std::string either_of(const std::vector<std::string_view>& words);

}  // namespace compact
