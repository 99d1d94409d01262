// Starts a program of a bundle (scripts/bundle.sh). BUNDLE/bin/NAME is a copy of this; it starts
// BUNDLE/libexec/NAME with the newer of two C libraries: the machine's, so that the drivers of its GPU and
// network load, or the one in BUNDLE/lib/glibc.
//
// A C library is chosen by its dynamic loader, which takes the program and the folders of libraries as
// arguments. The loader is mapped into this process, as the kernel maps a program, and not executed: the
// kernel goes on to know the process as BUNDLE/bin/NAME. /proc is not used. There is no C library in here,
// hence the system calls.
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstddef>
#include <initializer_list>

#include "src/base/as_size.hpp"

namespace {

using holdfast::as_size;
constexpr const char* machine_loader = "/lib64/ld-linux-x86-64.so.2";
constexpr std::size_t page = 4096, max_path = 4096, max_links = 40;

long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long result = 0;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;  // -4095 to -1: an error number
}

template <class T>
long number(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

std::size_t length(const char* text) {
  std::size_t n = 0;
  while (text[n] != 0) ++n;
  return n;
}

bool begins(const char* text, const char* with) {
  while (*with != 0)
    if (*text++ != *with++) return false;
  return true;
}

[[noreturn]] void fail(const char* problem, const char* path) {
  for (const char* part : {"holdfast: ", problem, " (", path, "). Unpack the bundle again, all of it?\n"})
    call(SYS_write, 2, number(part), static_cast<long>(length(part)));
  for (;;) call(SYS_exit_group, 1);
}

char* mapped(std::size_t bytes, int protection, int flags, int file = -1, std::size_t offset = 0,
             const void* place = nullptr) {
  const long at = call(SYS_mmap, number(place), static_cast<long>(bytes), protection, flags, file,
                       static_cast<long>(offset));
  if (at < 0 && at > -4096) fail("there is no memory to start in", "mmap");
  return reinterpret_cast<char*>(at);
}

/// Text in memory that is never given back.
class Text {
 public:
  explicit Text(std::size_t room)
      : begin_(mapped(room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)), room_(room) {}
  Text& add(const char* text) {
    for (; *text != 0 && size_ + 1 < room_; ++text) begin_[size_++] = *text;
    return *this;
  }
  Text& cut(std::size_t size) {
    while (size_ > size) begin_[--size_] = 0;
    return *this;
  }
  char* get() const { return begin_; }
  std::size_t size() const { return size_; }

 private:
  char* begin_;
  std::size_t room_, size_ = 0;
};

/// Length of the folder's part of a path, its last '/' included.
std::size_t folder(const char* path) {
  std::size_t end = 0;
  for (std::size_t i = 0; path[i] != 0; ++i)
    if (path[i] == '/') end = i + 1;
  return end;
}

/// The absolute path of this file, links to it followed.
Text own_path(const char* started_as) {
  Text path(3 * max_path), link(max_path + 1);
  if (started_as[0] != '/') {
    if (call(SYS_getcwd, number(path.get()), max_path) < 0)
      fail("the working folder is not known", started_as);
    Text absolute(3 * max_path);
    absolute.add(path.get()).add("/");
    path = absolute;
  }
  path.add(started_as);
  for (std::size_t i = 0; i < max_links; ++i) {
    link.cut(0);
    const long got = call(SYS_readlink, number(path.get()), number(link.get()), max_path);
    if (got <= 0) break;
    link.get()[got] = 0;
    path.cut(link.get()[0] == '/' ? 0 : folder(path.get())).add(link.get());
    for (long k = 0; k < got; ++k) link.get()[k] = 0;
  }
  return path;
}

struct File {
  int descriptor = -1;
  const char* bytes = nullptr;
  std::size_t size = 0;
};

File open_file(const char* path) {
  File file;
  file.descriptor = static_cast<int>(call(SYS_open, number(path), O_RDONLY | O_CLOEXEC));
  if (file.descriptor < 0) return file;
  const long size = call(SYS_lseek, file.descriptor, 0, 2 /* its end */);
  if (size < static_cast<long>(sizeof(Elf64_Ehdr))) return {};
  file.size = as_size(size);
  file.bytes = mapped(file.size, PROT_READ, MAP_PRIVATE, file.descriptor);
  return file;
}

/// The MINOR of "2.MINOR" in what the loader says to --version; 0: older than 2.33, the first one with such
/// words.
int version(const File& loader) {
  constexpr const char* words = "release version 2.";
  const std::size_t count = length(words);
  for (std::size_t i = 0; i + count + 4 < loader.size; ++i) {
    if (!begins(loader.bytes + i, words)) continue;
    int minor = 0;
    for (const char* digit = loader.bytes + i + count; *digit >= '0' && *digit <= '9'; ++digit)
      minor = 10 * minor + (*digit - '0');
    return minor;
  }
  return 0;
}

constexpr std::size_t down(std::size_t at) { return at / page * page; }
constexpr std::size_t up(std::size_t at) { return down(at + page - 1); }

/// Where it lies in memory.
const char* load(const File& file) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file.bytes);
  const auto* segment = reinterpret_cast<const Elf64_Phdr*>(file.bytes + header->e_phoff);
  std::size_t end = 0;
  for (int i = 0; i < header->e_phnum; ++i)
    if (segment[i].p_type == PT_LOAD) end = segment[i].p_vaddr + segment[i].p_memsz;
  char* base = mapped(up(end), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS);
  for (int i = 0; i < header->e_phnum; ++i) {
    const Elf64_Phdr& s = segment[i];
    if (s.p_type != PT_LOAD) continue;
    const int protection = (s.p_flags & PF_R ? PROT_READ : 0) | (s.p_flags & PF_W ? PROT_WRITE : 0) |
                           (s.p_flags & PF_X ? PROT_EXEC : 0);
    const std::size_t from = down(s.p_vaddr), file_end = s.p_vaddr + s.p_filesz,
                      memory_end = s.p_vaddr + s.p_memsz;
    mapped(file_end - from, protection, MAP_PRIVATE | MAP_FIXED, file.descriptor, down(s.p_offset),
           base + from);
    if (memory_end == file_end) continue;
    for (std::size_t at = file_end; at < up(file_end); ++at)
      base[at] = 0;  // the loader uses all of this page
    if (memory_end > up(file_end))
      mapped(memory_end - up(file_end), protection, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0,
             base + up(file_end));
  }
  return base;
}

}  // namespace

/// `stack`: what the kernel gives a program: the number of arguments, the arguments, the environment, the
/// auxiliary vector.
extern "C" [[noreturn]] void start_program(long* stack) {
  const long arguments = stack[0];
  char** argument = reinterpret_cast<char**>(stack + 1);
  char** environment = argument + arguments + 1;
  std::size_t variables = 0;
  const char* user_folders = "";
  for (; environment[variables] != nullptr; ++variables)
    if (constexpr const char* name = "LD_LIBRARY_PATH="; begins(environment[variables], name))
      user_folders = environment[variables] + length(name);
  const auto* auxiliary = reinterpret_cast<const Elf64_auxv_t*>(environment + variables + 1);
  const char* started_as = "";
  std::size_t entries = 0;
  do {
    if (auxiliary[entries].a_type == AT_EXECFN)
      started_as = reinterpret_cast<const char*>(auxiliary[entries].a_un.a_val);
  } while (auxiliary[entries++].a_type != AT_NULL);

  const Text self = own_path(started_as);
  const char* name = self.get() + folder(self.get());
  Text root(4 * max_path);
  root.add(self.get()).cut(folder(self.get())).add("..");
  const auto in_bundle = [&](const char* place, const char* file) {
    return Text(5 * max_path).add(root.get()).add(place).add(file);
  };
  const Text program = in_bundle("/libexec/", name),
             own_loader = in_bundle("/lib/glibc/", "ld-linux-x86-64.so.2");
  if (call(SYS_access, number(program.get()), 4 /* readable */) != 0)
    fail("a part is missing", program.get());
  const File own = open_file(own_loader.get()), machines = open_file(machine_loader);
  if (own.bytes == nullptr) fail("a part is missing", own_loader.get());
  const bool take_own = machines.bytes == nullptr || version(machines) < version(own);

  Text folders(10 * max_path + length(user_folders));
  if (take_own) folders.add(root.get()).add("/lib/glibc:");
  folders.add(root.get()).add("/lib");
  if (*user_folders != 0) folders.add(":").add(user_folders);
  const char* loader = load(take_own ? own : machines);
  for (const File& file : {own, machines})
    if (file.descriptor >= 0) {
      call(SYS_munmap, number(file.bytes), static_cast<long>(file.size));
      call(SYS_close, file.descriptor);
    }
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(loader);  // its first segment begins with it

  // The same again for the loader, lower on the stack.
  const char* added[] = {take_own ? own_loader.get() : machine_loader,
                         "--argv0",
                         arguments > 0 ? argument[0] : name,
                         "--library-path",
                         folders.get(),
                         program.get()};
  constexpr std::size_t adds = sizeof(added) / sizeof(added[0]);
  const std::size_t rest = arguments > 1 ? as_size(arguments) - 1 : 0;
  const std::size_t words = 1 + adds + rest + 1 + variables + 1 + 2 * entries;
  auto* made = static_cast<long*>(__builtin_alloca_with_align((words + 2) * sizeof(long), 128));
  long* next = made;
  *next++ = static_cast<long>(adds + rest);
  for (const char* word : added) *next++ = number(word);
  for (std::size_t i = 0; i < rest; ++i) *next++ = number(argument[i + 1]);
  *next++ = 0;
  for (std::size_t i = 0; i < variables; ++i) *next++ = number(environment[i]);
  *next++ = 0;
  for (std::size_t i = 0; i < entries; ++i) {
    const auto type = auxiliary[i].a_type;
    auto value = static_cast<long>(auxiliary[i].a_un.a_val);
    if (type == AT_BASE) value = 0;
    if (type == AT_PHDR) value = number(loader + header->e_phoff);
    if (type == AT_PHNUM) value = header->e_phnum;
    if (type == AT_ENTRY) value = number(loader + header->e_entry);
    if (type == AT_EXECFN) value = number(self.get());
    *next++ = static_cast<long>(type);
    *next++ = value;
  }
  __asm__ volatile("mov %0, %%rsp; xor %%edx, %%edx; xor %%ebp, %%ebp; jmp *%1"
                   :
                   : "r"(made), "r"(loader + header->e_entry)
                   : "memory");
  __builtin_unreachable();
}

__asm__(
    ".globl _start\n_start:\n  xor %ebp, %ebp\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call start_program\n");
