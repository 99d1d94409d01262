# For what does not compute for long.
set(holdfast_cold_options $<$<NOT:$<CONFIG:Debug>>:-O1>)

# holdfast_layer(NAME SOURCES a.cpp b.cpp LINKS holdfast::base [PRIVATE_LINKS ...] [COLD]): one folder, one static library.
# Headers are included from the project root: "slurm/hostlist.hpp". COLD: it does not compute for long, and is optimised
# less: that takes two thirds of the time to compile.
function(holdfast_layer name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  if(ARG_SOURCES)
    add_library(holdfast_${name} STATIC ${ARG_SOURCES})
    target_include_directories(holdfast_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(holdfast_${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS} holdfast_options)
    if(ARG_COLD)
      target_compile_options(holdfast_${name} PRIVATE ${holdfast_cold_options})
    endif()
  else()
    add_library(holdfast_${name} INTERFACE)
    target_include_directories(holdfast_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(holdfast_${name} INTERFACE ${ARG_LINKS})
  endif()
  add_library(holdfast::${name} ALIAS holdfast_${name})
endfunction()

# Sanitizers slow a test down, ThreadSanitizer up to fifteen times.
set(holdfast_test_patience 1)
if(HOLDFAST_SANITIZE)
  set(holdfast_test_patience 10)
endif()

# Tests are compiled for one run: what they test is optimised, they are not.
# holdfast_test(NAME SOURCES ... LINKS ... LABELS unit [TIMEOUT S] [COST S]): one GoogleTest program; each case is its own ctest.
# COST: about as long as its longest cases take. What has the highest begins first, so that no core is idle at the end.
function(holdfast_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;COST" "SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_COST)
    set(ARG_COST 0)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${holdfast_test_patience}")
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} holdfast_options GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${holdfast_cold_options})
  target_compile_definitions(${name} PRIVATE HOLDFAST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST})
endfunction()

# holdfast_mpi_test(NAME NP 1 2 4 SOURCES ... LINKS ... [TIMEOUT S] [COST S]): the same program on several world sizes (own main,
# see tests/support/mpi_main.cpp), label mpi.
function(holdfast_mpi_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;COST" "SOURCES;LINKS;NP;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_COST)
    set(ARG_COST 5)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${holdfast_test_patience}")
  add_executable(${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} holdfast_options GTest::gmock GTest::gtest MPI::MPI_CXX)
  target_compile_options(${name} PRIVATE ${holdfast_cold_options})
  target_compile_definitions(${name} PRIVATE HOLDFAST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  foreach(np IN LISTS ARG_NP)
    add_test(NAME ${name}.np${np} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${np} --oversubscribe --bind-to none
                                          $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.np${np} PROPERTIES LABELS "mpi;${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST} PROCESSORS 2
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMP_NUM_THREADS=1;OPENBLAS_NUM_THREADS=1;OMPI_MCA_mpi_yield_when_idle=1")
  endforeach()
endfunction()
