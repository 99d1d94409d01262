# Warnings and sanitizers as interface targets, linked PRIVATE by every target of ours.
add_library(holdfast_options INTERFACE)
# One product of two floats is one rounding: no contraction into fma, so that the same source gives the same bits
# whatever the vector width the compiler picks.
# g++ 12 is wrong in two ways: -Wmaybe-uninitialized about every std::variant that is moved, -Wrestrict about "a" + std::string.
target_compile_options(holdfast_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-maybe-uninitialized -Wno-restrict -ffp-contract=off)
# All presets but dev compile a library in one piece. g++ 12 then takes an anonymous namespace of a .cpp for one of a header.
if(CMAKE_UNITY_BUILD)
  target_compile_options(holdfast_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
if(HOLDFAST_WERROR)
  target_compile_options(holdfast_options INTERFACE -Werror)
endif()
if(HOLDFAST_SANITIZE)
  target_compile_options(holdfast_options INTERFACE -fsanitize=${HOLDFAST_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(holdfast_options INTERFACE -fsanitize=${HOLDFAST_SANITIZE})
endif()
# What a wrong access to memory leads to is made harder to use, in all that is built here: checked copies, guarded stacks, tables
# of the loader that are read-only before main() begins. Sanitizers look for the access itself, and their own checks of the C
# library's calls do not go with fortified ones. Those need an optimiser.
option(HOLDFAST_HARDENED "Harden programs against wrong accesses to memory" ON)
if(HOLDFAST_SANITIZE OR CMAKE_BUILD_TYPE MATCHES "^(Debug)?$")
  set(HOLDFAST_HARDENED OFF)
endif()
if(HOLDFAST_HARDENED)
  include(CheckCXXCompilerFlag)
  include(CheckCXXSourceCompiles)
  include(CheckLinkerFlag)
  set(of_host $<COMPILE_LANGUAGE:C,CXX>)
  foreach(flag stack-protector-strong stack-clash-protection)
    string(MAKE_C_IDENTIFIER "HOLDFAST_HAS_${flag}" has)
    check_cxx_compiler_flag(-f${flag} ${has})
    if(${has})
      add_compile_options($<${of_host}:-f${flag}>)
    endif()
  endforeach()
  # 3 needs GCC 12 or clang 15 and glibc 2.34, which warn where they take it for 2.
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("#include <cstring>
    int main() { return 0; }" HOLDFAST_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  add_compile_options($<${of_host}:-U_FORTIFY_SOURCE> $<${of_host}:-D_FORTIFY_SOURCE=$<IF:$<BOOL:${HOLDFAST_HAS_FORTIFY_3}>,3,2>>)
  check_linker_flag(CXX -Wl,-z,relro,-z,now HOLDFAST_HAS_RELRO_NOW)
  if(HOLDFAST_HAS_RELRO_NOW)
    add_link_options(-Wl,-z,relro,-z,now)
  endif()
endif()
find_program(HOLDFAST_CCACHE ccache)
if(HOLDFAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HOLDFAST_CCACHE})
endif()
