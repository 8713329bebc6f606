#pragma once
#include <cstddef>
#include <string_view>

namespace compact {

/// Letters to insert, remove, change or swap with their neighbour to make one text of the other: how far a
/// word that a user typed is from one that exists.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace compact
