# One set of compile options for everything: library, program, examples, tests.

if(NOT CMAKE_BUILD_TYPE)
    # A sanitizer build keeps assert(): it is the one that looks for bugs.
    if(PI0_SANITIZE OR PI0_FUZZ)
        set(CMAKE_BUILD_TYPE Debug CACHE STRING "" FORCE)
    else()
        set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
    endif()
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_definitions(_GNU_SOURCE)

# -ffp-contract=off: an FMA is written where it is meant, so every build of every machine computes the same bits.
add_compile_options(-ffp-contract=off -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-format-truncation) # cut text is meant, or checked; and what gcc sees of it changes with the optimiser
endif()
if(PI0_WERROR)
    add_compile_options(-Werror)
    # These come out of the optimiser's data flow and differ between compiler versions: with one that was never tried here they are told,
    # and do not keep a newcomer from building.
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
        add_compile_options(-Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=stringop-overread
                            -Wno-error=dangling-pointer -Wno-error=use-after-free)
    endif()
endif()
# Neither changes a result: nobody reads errno or the exception flags, and square roots and selects may then be vector code.
set(math -fno-math-errno -fno-trapping-math)
# A bare Debug build is -O0: too slow for the instrumented suite.
if(PI0_SANITIZE OR PI0_FUZZ)
    set(PI0_KERNEL_OPTIONS -O1 ${math}) # at -O2 one of these folders takes minutes to compile
    add_compile_options(-O1 -g1 -fno-omit-frame-pointer)
else()
    # Where a variable lives in unrolled code costs the compiler as long as the code itself: -g1 keeps lines and functions. A Debug build
    # has everything.
    add_compile_options($<$<CONFIG:RelWithDebInfo>:-g1>)
    set(PI0_KERNEL_OPTIONS $<$<CONFIG:RelWithDebInfo,Release,MinSizeRel>:-O3> ${math})
endif()

if((PI0_SANITIZE OR PI0_FUZZ) AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized) # instrumented code hides from gcc what it needs to know; the release build asks it
endif()
if(PI0_SANITIZE STREQUAL "address")
    add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
    add_link_options(-fsanitize=address,undefined)
elseif(PI0_SANITIZE STREQUAL "thread")
    add_compile_options(-fsanitize=thread)
    add_link_options(-fsanitize=thread)
elseif(PI0_SANITIZE)
    message(FATAL_ERROR "PI0_SANITIZE=${PI0_SANITIZE}: address or thread")
endif()
if(PI0_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "PI0_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
    list(APPEND PI0_KERNEL_OPTIONS -fno-sanitize=all) # no reader gets there, and instrumented they take minutes to compile
    add_link_options(-fsanitize=address,undefined)
endif()
