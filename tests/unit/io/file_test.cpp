#include "compact/io/file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "io_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

class Files : public FolderTest {};

TEST_F(Files, WritesAndReadsAtAnyOffset) {
  OutputFile out(at("a"));
  out.write("hello world");
  out.seek(6);
  out.write("W");
  out.close();
  const InputFile in(at("a"));
  EXPECT_EQ(in.size(), 11);
  std::string word(5, '?');
  in.read(6, word.data(), 5);
  EXPECT_EQ(word, "World");
  in.read(11, word.data(), 0);
}

TEST_F(Files, ReadBeyondTheEndSaysWhere) {
  put_file(at("a.bin"), "12345678");
  const InputFile in(at("a.bin"));
  char to[8];
  expect_has(message_of<InputError>([&] { in.read(5, to, 8); }), {"a.bin", "8 bytes", "offset 5", "holds 3"});
  expect_has(message_of<InputError>([&] { in.read(100, to, 1); }), {"a.bin", "offset 100"});
}

TEST_F(Files, AFileCutOffAfterOpeningIsSaid) {
  put_file(at("a.bin"), std::string(1000, 'x'));
  const InputFile in(at("a.bin"));
  fs::resize_file(at("a.bin"), 10);
  char to[100];
  expect_has(message_of<InputError>([&] { in.read(0, to, 100); }), {"a.bin", "cut off"});
}

TEST_F(Files, MovedFileStaysOpen) {
  put_file(at("a"), "abc");
  InputFile first(at("a"));
  const InputFile second(std::move(first));
  char to[3];
  second.read(0, to, 3);
  EXPECT_EQ(std::string(to, 3), "abc");
}

TEST_F(Files, WhatIsNoFileIsNamed) {
  fs::create_directory(at("folder"));
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  fs::create_symlink("gone", at("dangling"));
  fs::create_symlink("loop", at("loop"));
  expect_has(message_of<InputError>([&] { InputFile f(at("missing")); }), {"missing", "No such file"});
  expect_has(message_of<InputError>([&] { InputFile f(at("folder")); }), {"folder", "directory"});
  expect_has(message_of<InputError>([&] { InputFile f(at("pipe")); }), {"pipe", "named pipe"});
  expect_has(message_of<InputError>([&] { InputFile f(at("dangling")); }), {"dangling", "symbolic link"});
  expect_has(message_of<InputError>([&] { InputFile f(at("loop")); }), {"loop", "symbolic links"});
}

TEST_F(Files, WritingToNowhereIsARunError) {
  expect_has(message_of<RunError>([&] { OutputFile f(at("no/such/a")); }), {"no/such/a", "No such file"});
  fs::create_directory(at("folder"));
  expect_has(message_of<RunError>([&] { OutputFile f(at("folder")); }), {"folder", "directory"});
}

TEST_F(Files, AFullDiskIsSaidWithTheFile) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  OutputFile out("/dev/full");
  expect_has(message_of<RunError>([&] { out.write("x"); }), {"/dev/full", "No space left on device"});
}

TEST_F(Files, AFailedAtomicWriteKeepsTheOldFile) {
  put_file(at("a.json"), "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      message_of<RunError>([&] { write_text_atomically(at("a.json"), std::string(5000, 'n')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  expect_has(message, {"a.json", "File too large"});
  EXPECT_EQ(read_text(at("a.json")), "old");
  EXPECT_FALSE(fs::exists(at("a.json.tmp")));
}

TEST_F(Files, AtomicWriteReplaces) {
  write_text_atomically(at("a.json"), "one");
  write_text_atomically(at("a.json"), "two");
  EXPECT_EQ(read_text(at("a.json")), "two");
  EXPECT_FALSE(fs::exists(at("a.json.tmp")));
  EXPECT_THROW(write_text_atomically(at("no/a.json"), "x"), RunError);
}

TEST_F(Files, TextAboveTheLimitIsRefused) {
  put_file(at("a"), std::string(100, 'x'));
  EXPECT_EQ(read_text(at("a"), 100).size(), 100u);
  expect_has(message_of<InputError>([&] { read_text(at("a"), 99); }), {"100 bytes", "99"});
}

TEST_F(Files, HashIsXxh3) {
  put_file(at("empty"), "");
  EXPECT_EQ(xxh3_of_file(at("empty")), "2d06800538d394c2");  // the published value for no bytes
  put_file(at("large"), std::string((1 << 20) + 3, 'x'));
  put_file(at("other"), std::string((1 << 20) + 2, 'x') + "y");
  EXPECT_EQ(xxh3_of_file(at("large")).size(), 16u);
  EXPECT_NE(xxh3_of_file(at("large")), xxh3_of_file(at("other")));
}

TEST_F(Files, FoldersAreMadeOrTheReasonSaid) {
  make_folders(at("a/b/c"));
  make_folders(at("a/b/c/"));
  make_folders("");
  EXPECT_TRUE(fs::is_directory(at("a/b/c")));
  sync_folder(at("a"));
  put_file(at("file"), "x");
  expect_has(message_of<RunError>([&] { make_folders(at("file/d")); }), {"file/d"});
  expect_has(message_of<RunError>([&] { make_folders(at("file")); }), {"file"});
  EXPECT_THROW(sync_folder(at("none")), RunError);
}

TEST_F(Files, GlobIsSortedAndAPlainNameIsItself) {
  for (const char* name : {"x_2.bin", "x_10.bin", "x_1.bin", "y.bin", "odd[1].bin"}) put_file(at(name), "");
  fs::create_symlink("gone", at("x_3.bin"));
  const std::vector<std::string> found = {at("x_1.bin"), at("x_10.bin"), at("x_2.bin"), at("x_3.bin")};
  EXPECT_EQ(glob_files(at("x_*.bin")), found);
  EXPECT_EQ(glob_files(at("odd[1].bin")), std::vector<std::string>{at("odd[1].bin")});
  EXPECT_EQ(glob_files(at("x_3.bin")), std::vector<std::string>{at("x_3.bin")});
  EXPECT_TRUE(glob_files(at("z*")).empty());
  EXPECT_TRUE(glob_files(at("z")).empty());
}

}  // namespace
}  // namespace compact
