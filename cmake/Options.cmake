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
find_program(HOLDFAST_CCACHE ccache)
if(HOLDFAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HOLDFAST_CCACHE})
endif()
