#include "base/base.h"

/* The one place of the version: CMakeLists.txt reads this line. */
#define PI0_VERSION_TEXT "0.1.0"

const char *pi0_version(void)
{
    return PI0_VERSION_TEXT;
}
