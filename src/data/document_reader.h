#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "compact/data/tokenizer.h"
#include "src/data/byte_reader.h"
#include "src/data/utf8.h"

namespace compact {

/// The lines of a UTF-8 input in bounded memory: a long line comes in several parts. A byte order mark at the
/// start is taken away, "\r\n" ends a line as "\n" does. Throws InputError (name, byte offset) at invalid
/// UTF-8 and UTF-16.
class LineReader {
 public:
  explicit LineReader(const std::string& input);
  struct Part {
    std::string_view text;  ///< valid until the next call; without the line's end
    bool begins = false, ends = false;
    bool newline = false;  ///< it ends with a newline, not only with the input
  };
  /// The next part; false at the end of the input. A line of up to 64 KiB is one part.
  bool next(Part& part);
  const std::string& name() const { return bytes_.name(); }

 private:
  void fill();
  void check_encoding();
  ByteReader bytes_;
  Utf8Checker checker_;
  std::string buffer_;
  std::size_t begin_ = 0, scanned_ = 0;
  bool at_end_ = false, first_ = true, line_begins_ = true;
};

/// The documents of one input, in pieces of at most 1 MiB: plain text, split at lines that are
/// `<|endoftext|>` (what stands between them is kept as it is, with its last newline), or JSON lines (a name
/// that ends in .jsonl or .jsonl.gz). Documents of white space only are passed over.
class DocumentReader {
 public:
  /// A long document is cut where this does not change the tokens of `tokenizer` (may be null).
  DocumentReader(const std::string& input, const Tokenizer* tokenizer);
  struct Piece {
    std::string text;
    bool begins = false;  ///< first piece of its document
    bool ends = false;    ///< last piece of its document
  };
  bool next(Piece& piece);

 private:
  bool read_text();
  bool read_json_line();
  void append(std::string_view text);
  std::size_t cut(std::string_view text) const;
  LineReader lines_;
  const Tokenizer* tokenizer_;
  bool json_ = false;
  std::int64_t line_ = 0;
  std::string document_;   // what was read of the current document and not yet given out
  std::size_t given_ = 0;  // bytes of document_ already given out
  bool complete_ = false;  // document_ holds the document's end
  bool begun_ = false;     // a piece of it was given out
  bool has_text_ = false;  // something in it is not white space
};

}  // namespace compact
