/* tool_make_checkpoints OUT_DIR [NAME ...]: writes the tiny checkpoints of the reference set (all, or those named) below OUT_DIR. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "golden_checkpoints.h"

static int make(const char *out, const char *name)
{
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/%s", out, name);
    if (pi0_test_make_checkpoint(name, dir) == 0)
        return 0;
    fprintf(stderr, "tool_make_checkpoints: %s: %s\n", dir, strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: tool_make_checkpoints OUT_DIR [NAME ...]\n");
        return 2;
    }
    if (mkdir(argv[1], 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "tool_make_checkpoints: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    int bad = 0;
    for (int i = 2; i < argc; i++)
        bad |= make(argv[1], argv[i]);
    for (size_t i = 0; argc == 2 && pi0_test_checkpoint_name(i); i++)
        bad |= make(argv[1], pi0_test_checkpoint_name(i));
    return bad;
}
