# Tests: every tests/test_*.c is one program and one CTest entry; so is every tests/test_*.sh and tests/check_*.py. A test may carry a
# line "ctest: label=threads label=long timeout=300" (tests/support.h); without one it has 300 seconds.

set(PI0_TEST_ENVIRONMENT
    "PI0=${PROJECT_BINARY_DIR}/pi0"
    "SRC=${PROJECT_SOURCE_DIR}"
    "BUILD=${PROJECT_BINARY_DIR}"
    "TEST_DATA=${PROJECT_SOURCE_DIR}/tests/data"
    "SANITIZE=${PI0_SANITIZE}"
    # Huge sizes must come back as NULL, as they do without the sanitizer.
    "ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:abort_on_error=0"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1:second_deadlock_stack=1")

# Reads a test's own "ctest:" line and sets its properties. kind is its first label.
function(pi0_test_properties name source kind)
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} line REGEX "ctest: " LIMIT_COUNT 1)
    set(labels ${kind})
    set(timeout 300)
    string(REGEX MATCHALL "label=[a-z]+" marks "${line}")
    foreach(mark ${marks})
        string(REPLACE "label=" "" label ${mark})
        list(APPEND labels ${label})
    endforeach()
    if(line MATCHES "timeout=([0-9]+)")
        set(timeout ${CMAKE_MATCH_1})
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77
                         ENVIRONMENT "${PI0_TEST_ENVIRONMENT}" WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()

function(pi0_add_unit_tests)
    pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
    file(GLOB test_sources CONFIGURE_DEPENDS tests/test_*.c)
    file(GLOB tool_sources CONFIGURE_DEPENDS tests/tool_*.c)
    file(GLOB support_sources CONFIGURE_DEPENDS tests/*.c)
    list(REMOVE_ITEM support_sources ${test_sources} ${tool_sources} "")

    # Allocation failure: the linker turns these calls into those of tests/support.c.
    set(wrapped malloc calloc realloc posix_memalign aligned_alloc strdup strndup mmap)
    list(TRANSFORM wrapped PREPEND -Wl,--wrap=)

    add_library(test_support STATIC ${support_sources})
    target_include_directories(test_support PUBLIC src tests)
    target_compile_definitions(test_support PUBLIC PI0_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
    target_link_libraries(test_support PUBLIC PkgConfig::CMOCKA pi0_static)
    foreach(source ${test_sources} ${tool_sources})
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source})
        target_link_libraries(${name} PRIVATE test_support)
        target_link_options(${name} PRIVATE ${wrapped})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    endforeach()
    foreach(source ${test_sources})
        get_filename_component(name ${source} NAME_WE)
        add_test(NAME ${name} COMMAND ${name})
        pi0_test_properties(${name} ${source} unit)
        get_test_property(${name} LABELS labels)
        if("threads" IN_LIST labels)
            list(APPEND threaded ${name})
        endif()
        if(name MATCHES "^test_kernels")
            list(APPEND kernels ${name})
        endif()
    endforeach()
    # All that the ThreadSanitizer run needs, and all that other processors are asked.
    add_custom_target(threaded_tests DEPENDS ${threaded})
    if(PI0_EMULATE_AVX512) # no engine, so no program
        add_custom_target(kernel_tests DEPENDS ${kernels})
    else()
        add_custom_target(kernel_tests DEPENDS ${kernels} pi0)
    endif()
endfunction()

function(pi0_add_script_tests)
    file(GLOB scripts CONFIGURE_DEPENDS tests/test_*.sh tests/check_*.py)
    find_program(PI0_BASH bash)
    find_program(PI0_PYTHON python3)
    foreach(script ${scripts})
        get_filename_component(name ${script} NAME_WE)
        if(script MATCHES "\\.py$")
            set(runner ${PI0_PYTHON})
            set(kind check)
        else()
            set(runner ${PI0_BASH})
            set(kind script)
        endif()
        if(NOT runner)
            message(STATUS "${name} is left out: its interpreter is not installed")
            continue()
        endif()
        add_test(NAME ${name} COMMAND ${runner} ${script})
        pi0_test_properties(${name} ${script} ${kind})
    endforeach()
endfunction()

# Without clang the fuzz targets still run once over their corpus (tests/fuzz/corpus/<target>), as ordinary tests.
function(pi0_add_corpus_tests)
    file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
    foreach(source ${sources})
        get_filename_component(name ${source} NAME_WE)
        add_executable(replay_${name} ${source} tests/fuzz/replay.c)
        target_include_directories(replay_${name} PRIVATE src tests)
        target_link_libraries(replay_${name} PRIVATE pi0_static)
        set_target_properties(replay_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
        add_test(NAME replay_${name} COMMAND replay_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
        pi0_test_properties(replay_${name} ${source} corpus)
    endforeach()
endfunction()

function(pi0_add_tests)
    pi0_add_unit_tests()
    pi0_add_script_tests()
    pi0_add_corpus_tests()
endfunction()

function(pi0_add_fuzzers)
    file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
    foreach(source ${sources})
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source})
        target_include_directories(${name} PRIVATE src tests)
        target_link_libraries(${name} PRIVATE pi0_static)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    endforeach()
endfunction()
