#include "compact/core/error.h"

namespace compact {

void bug(const std::string& text) { throw std::logic_error("internal error: " + text); }

}  // namespace compact
